#pragma once
// Which positions of the expert-major layout the (token, slot) pairs of a routing take.

#include <vector>

#include "kernels/op.h"

namespace tessera::kernels {

struct GetFusedMappingOptions {
  int64_t num_experts = 0;          // 1 .. 1024
  int64_t alignment = 1;            // every expert's range is a multiple of it
  int64_t num_expanded_tokens = 0;  // positions; 0 = as many as needed
  bool force_no_sync = false;       // with 0 positions: none, and no wait for the device
};

/// The i32 tensors that a call writes. P positions: num_expanded_tokens where that is given, none
/// with force_no_sync, else any number, as a rule what fused_mapping_bound says.
struct FusedMapping {
  TensorView pos_to_expert;          // [P]: -1 in padding, as in the next two
  TensorView pos_to_token;           // [P]
  TensorView pos_to_token_topk;      // [P]: token * num_topk + slot
  TensorView token_topk_to_pos;      // [tokens, num_topk]: -1 without a position
  TensorView expert_start;           // [experts]
  TensorView expert_end;             // [experts]: padding included
  TensorView num_tokens_per_expert;  // [experts]: padding included
};

/// Sorts the pairs of `topk_idx` (i64 [tokens, num_topk], -1: nowhere) by expert, ascending pairs
/// within one, and pads the range of each expert to a multiple of the alignment. Ids that are no
/// experts count as -1. Pairs whose position is not below P get none, while expert_start, expert_end
/// and num_tokens_per_expert tell what would have been needed.
///
/// Returns num_tokens_per_expert after waiting for the stream; empty, without waiting, where
/// num_expanded_tokens is given or force_no_sync set.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or an option is out of range;
///          on CPU tensors also for an id that is neither -1 nor an expert, and for pairs beyond P.
/// Example: const auto counts = get_fused_mapping(topk_idx, mapping, {.num_experts = 64}, stream);
std::vector<int32_t> get_fused_mapping(const TensorView& topk_idx, const FusedMapping& mapping,
                                       const GetFusedMappingOptions& options, Stream stream);

/// Positions that are enough for any routing of `num_pairs` pairs.
int64_t fused_mapping_bound(int64_t num_pairs, int64_t num_experts, int64_t alignment);

const OpInfo& get_fused_mapping_op();

}  // namespace tessera::kernels
