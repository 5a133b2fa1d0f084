#pragma once
// A mapping of tokens to experts for examples and benchmarks, in closed form: as many entries as
// asked for, spread evenly over tokens and experts, every expert's range padded to a multiple of
// the alignment.

#include <cstdint>

#include "kernels/signature/case.h"

namespace tessera::kernels::moe {

/// Entry n of `num_entries` belongs to expert n % num_experts; tokens own runs of entries of nearly
/// equal length, in slots that start elsewhere for every token.
struct EvenMapping {
  int64_t num_tokens, num_topk, num_experts, num_entries, alignment;

  /// Positions, padding included.
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

/// Of a case: T, K, E, `entries` and `alignment`, words of the ops that take mappings.
EvenMapping mapping_of(const Case& c);
/// The same, but of as many experts as the P of the case has room for.
EvenMapping mapping_within(const Case& c);
/// The standard of `entries`: what one of several ranks sees of 4001 tokens per rank, num_topk entries
/// per token sent, which fell on T tokens.
int64_t rank_entries(const Case& c);

}  // namespace tessera::kernels::moe
