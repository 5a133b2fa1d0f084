#pragma once
// A mapping of tokens to experts for examples and benchmarks, in closed form: as many entries as
// asked for, spread evenly over tokens and experts, every expert's range padded to a multiple of
// the alignment.

#include <cstdint>

#include "kernels/op.h"

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

  /// The i32 inputs token_topk_to_pos [T, K] and pos_to_expert [P] of a benchmark.
  BenchCase::Input token_topk_to_pos() const;
  BenchCase::Input pos_to_expert() const;

 private:
  int64_t count(int64_t expert) const;
  int64_t start(int64_t expert) const;
};

/// What one of several ranks sees of 4001 tokens per rank: num_topk entries per token sent, which
/// fell on `num_tokens` tokens.
EvenMapping rank_mapping(int64_t num_tokens, int64_t num_topk, int64_t num_experts,
                         int64_t alignment);

}  // namespace tessera::kernels::moe
