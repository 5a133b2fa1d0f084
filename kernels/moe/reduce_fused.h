#pragma once
// The outputs of a token's experts, weighted and summed.

#include "kernels/op.h"

namespace tessera::kernels {

/// The tensors of a call; those that may be absent are absent by default.
struct ReduceFusedTensors {
  TensorView x;                  // f32|bf16 [positions, hidden], hidden a multiple of 256
  TensorView x_sf;               // f32 [positions]: a factor per position, absent = 1
  TensorView topk_weights;       // f32 [tokens, num_topk], absent = 1
  TensorView token_topk_to_pos;  // i32 [tokens, num_topk], -1: nothing to add
  TensorView sf;                 // f32 [1]: a factor of the sum, only with e4m3
  TensorView out;                // dtype of x, or e4m3 [tokens, hidden], written
};

/// Sums, for every token, the rows at its positions: acc = fma(x, weight * x_sf, acc) from +0 in the
/// order of the slots, then acc * sf, then one conversion (e4m3 saturates to +-448). Slots without a
/// position below `positions` are skipped. The dtype of `out` says the format.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, hidden is no multiple of
///          256, or sf is given without e4m3; on CPU tensors also for a position that does
///          not exist.
/// Example: reduce_fused({.x = x, .topk_weights = weights, .token_topk_to_pos = positions,
///                        .out = out}, stream);
void reduce_fused(const ReduceFusedTensors& tensors, Stream stream);

const OpInfo& reduce_fused_op();

}  // namespace tessera::kernels
