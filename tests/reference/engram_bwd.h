#pragma once
// The backward Engram ops by definition, one element at a time: sums over a row in f64, all else in f32
// in the order of the specification.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Gradients of engram_gate_fwd. With l = sum of G v over the row, g the gate, s = D^(-1/2):
///
///   delta    0 where |dot| s rx rk < clamp_value, else l g (1 - g) / 2 * sqrt(s rx rk / |dot|)
///   grad_x   G + delta (k w - x dot rx^2 / D)
///   grad_k   delta (x w - k dot rk^2 / D)
///   grad_v   sum of g G over the streams
///   grad_w   of partial p: sum of delta x k over tokens ceil(T / partials) p and the ones after it
///
///   grad_out, x, k               bf16 [.., hc, D]
///   v                            bf16 [.., D]
///   weight_fused                 f32 [hc, D]
///   dot, gate_score, rstd_x/_k   f32 [.., hc]
///   image_token_mask?            bool [..]: where true, grad_x is grad_out and all else +0
struct GateGradients {
  test::HostTensor x, k;  // bf16 [.., hc, D]
  test::HostTensor v;     // bf16 [.., D]
  test::HostTensor w;     // f32 [partials, hc, D]
};
GateGradients engram_gate_bwd(const test::HostTensors& inputs, double clamp_value,
                              int64_t partials);

/// The sum S of the partials in ascending order from +0, then grad_weight_hidden + S weight_embed and
/// grad_weight_embed + S weight_hidden, each an fma; a gradient that is not given is +0.
///
///   grad_w_partial                            f32 [Z, hc, D]
///   weight_hidden, weight_embed               bf16 [hc, D]
///   grad_weight_hidden?, grad_weight_embed?   f32 [hc, D]
///   returns                                   the last two
test::HostTensors grad_w_reduce(const test::HostTensors& inputs);

}  // namespace tessera::reference
