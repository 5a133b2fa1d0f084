#pragma once
// The gated memory of every residual stream.

#include "kernels/op.h"

namespace tessera::kernels {

/// The tensors of a call. Tokens may have several dimensions, the same ones in every tensor.
struct EngramGateTensors {
  TensorView hidden_states;  // bf16 [tokens, streams, hidden], hidden >= 512, a multiple of 256
  TensorView k;              // bf16 [tokens, streams, hidden], last stride 1
  TensorView v;              // bf16 [tokens, hidden], last stride 1
  TensorView weight_fused;   // f32 [streams, hidden]
  TensorView out;            // bf16 [tokens, streams, hidden], written
  // f32 [tokens, streams], written; all four or none
  TensorView dot, gate_score, rstd_x, rstd_k;
};

struct EngramGateFwdOptions {
  double eps = 1e-20;         // added to mean squares
  double clamp_value = 1e-6;  // least magnitude of a score before its root
};

/// Adds to every stream the value row, weighted by its gate: out = x + g v with
///
///   rstd_x = 1 / sqrt(mean(x^2) + eps)          rstd_k likewise
///   dot    = sum of x * weight * k               u = dot * rstd_x * rstd_k / sqrt(hidden)
///   g      = sigmoid(sign(u) * sqrt(max(|u|, clamp_value)))
///
/// in f32, one rounding to bf16. The sign is that of u also where u is 0; NaN spreads to the whole
/// row. The result of a token depends on no other token.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees;
///          kind unsupported for rows of k or v apart in several token dimensions.
/// Example: engram_gate_fwd({.hidden_states = x, .k = k, .v = v, .weight_fused = w, .out = out},
///                          {.eps = 1e-20}, stream);
void engram_gate_fwd(const EngramGateTensors& tensors, const EngramGateFwdOptions& options,
                     Stream stream);

const OpInfo& engram_gate_fwd_op();

}  // namespace tessera::kernels
