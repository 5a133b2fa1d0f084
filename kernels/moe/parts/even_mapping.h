#pragma once
// A mapping of tokens to experts in closed form, for examples and benchmarks: `num_entries` entries
// spread evenly over tokens and experts, each expert's range padded to a multiple of the alignment.

#include <cstdint>

#include "kernels/signature/case.h"

namespace tessera::kernels::moe {

/// Entry n belongs to expert n % num_experts. Tokens own runs of entries of nearly equal length;
/// the slots of a run start at a different index for every token.
struct EvenMapping {
  int64_t num_tokens, num_topk, num_experts, num_entries, alignment;

  /// Number of positions, padding included.
  int64_t num_positions() const;
  /// Element t * num_topk + k of token_topk_to_pos: a position, or -1.
  int64_t position(int64_t flat) const;
  /// Element of pos_to_expert: an expert, or -1 in padding.
  int64_t expert(int64_t position) const;
  /// Element of pos_to_token_topk: the pair t * num_topk + k at the position, or -1 in padding.
  int64_t pair(int64_t position) const;

 private:
  int64_t count(int64_t expert) const;
  int64_t start(int64_t expert) const;
};

/// The mapping of a case, from its T, K, E, `entries` and `alignment`.
EvenMapping mapping_of(const Case& c);
/// The same, with no more experts than fit in the P positions of the case.
EvenMapping mapping_within(const Case& c);
/// The default of `entries`: the share of one of several ranks with 4001 tokens each, num_topk entries
/// per sent token, for T received tokens.
int64_t rank_entries(const Case& c);

}  // namespace tessera::kernels::moe
