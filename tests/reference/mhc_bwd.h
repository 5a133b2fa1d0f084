#pragma once
// The backward hyper-connection ops by definition: chains that the specification orders are in f32,
// sums over columns and the Sinkhorn steps in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct PostGradients {
  test::HostTensor x, residual, post_mix, comb_mix;
};

/// Gradients of post_fwd: fma chains over the output streams from +0 for x and residual, one
/// rounding to bf16; sums over the columns for the mixes.
///
///   grad_out, residual   bf16 [.., n, H]
///   x                    bf16 [.., H]
///   post_mix             f32  [.., n]
///   comb_mix             f32  [.., n, n]
///
/// Example: n = 1, grad_out {2}, x {3}, residual {5}, post {0.5}, comb {1}: x 1, residual 2,
/// post_mix 6, comb_mix 10.
PostGradients post_bwd(const test::HostTensor& grad_out, const test::HostTensor& x,
                       const test::HostTensor& residual, const test::HostTensor& post_mix,
                       const test::HostTensor& comb_mix);

/// Gradient of sinkhorn_fwd with respect to its logits, every division differentiated as it stands.
///
///   grad_out, x   f32 [.., n, n]
///   returns       f32 [.., n, n]
///
/// Example: n = 1 gives 0.
test::HostTensor sinkhorn_bwd(const test::HostTensor& grad_out, const test::HostTensor& x,
                              int64_t repeat, double eps);

}  // namespace tessera::reference
