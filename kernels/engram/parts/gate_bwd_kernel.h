#pragma once
// The kernels of engram_gate_bwd: one kernel where a row fits a block, two kernels for any row. Both
// give the same bits.

#include "dsl/ir/tile.h"

namespace tessera::kernels::engram {

inline constexpr int64_t kStreams = 4;

/// Everything that generated code depends on.
struct GateBwdSpec {
  int32_t hidden;              // a multiple of 512
  uint8_t vector, out_vector;  // columns of bf16 inputs and outputs per access, at most 8
  uint8_t weight_vector;       // weights per access, at most 4
  uint8_t sum_vector;          // sums of grad_w_partial per access, at most 4
  int32_t has_mask;            // 0 or 1: some tokens may be those of an image
};

/// True if build_gate_bwd takes such rows with `shared_bytes` of shared memory per block. It spills
/// registers if an access to an input is narrower than 8 columns.
bool fits_one_block(int64_t hidden, int64_t shared_bytes);

/// Tensors: those of the op; grad_out, hidden_states, grad_hidden_states and grad_k as rows of all
/// tokens and streams. Scalars: clamp_value, tokens_per_partial. All kernels with tokens take
/// image_token_mask if has_mask is 1.
ir::Kernel build_gate_bwd(const GateBwdSpec& s);

/// Tensors: grad_out (rows), v, dot, gate_score, rstd_x, rstd_k; grad_v, score_gradients f32 [3, rows].
/// Scalar: clamp_value.
ir::Kernel build_gate_scores(const GateBwdSpec& s);
/// Tensors: grad_out, hidden_states (rows), k, weight_fused, score_gradients; grad_hidden_states and
/// grad_k (rows), grad_w_partial. Scalar: tokens_per_partial.
ir::Kernel build_gate_rows(const GateBwdSpec& s);

/// Builds the kernel of calls without tokens: grad_w_partial alone, all +0.
ir::Kernel build_no_tokens(const GateBwdSpec& s);

}  // namespace tessera::kernels::engram
