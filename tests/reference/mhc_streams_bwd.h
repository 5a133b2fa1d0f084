#pragma once
// Gradients of the ops that copy and mix residual streams, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Gradient of expand_to_mhc_fwd: f32 sums over the streams in ascending order from +0, one rounding
/// to bf16.
///
///   grad_out   bf16 [.., n, H]
///   returns    bf16 [.., H]
///
/// Example: streams {1, 2} and {3, 4} give {4, 6}.
test::HostTensor expand_to_mhc_bwd(const test::HostTensor& grad_out);

struct ApplyMixGradients {
  test::HostTensor x, mix;
};

/// Gradients of pre_apply_mix_fwd: x = bf16(fma(mix, grad_out, grad_x)), mix = the sum over the
/// columns of x * grad_out in f64, rounded once.
///
///   grad_out   bf16 [.., H]
///   x          bf16 [.., n, H]
///   mix        f32  [.., n]
///   grad_x     bf16 [.., n, H], null = zeros
///
/// Example: n = 1, grad_out {2}, x {3}, mix {0.5}, grad_x {4}: x 5, mix 6.
ApplyMixGradients pre_apply_mix_bwd(const test::HostTensor& grad_out, const test::HostTensor& x,
                                    const test::HostTensor& mix, const test::HostTensor* grad_x);

}  // namespace tessera::reference
