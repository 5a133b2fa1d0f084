#pragma once
// Gradients of the mixes of a sub-layer, by definition, in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct SplitMixGradients {
  test::HostTensor input_mixes, scale, base;
};

/// Gradients of pre_split_mixes_fwd. Of z_j = m_j * scale + base_j the gradient g_j is
/// grad_pre_mix p (1 - p) with p = sigmoid(z_j), grad_post_mix post (1 - post / post_mult) with the
/// saved output, or grad_comb_logits; g_j * scale for each entry; the sums over all tokens of g_j m_j
/// for its scale and of g_j for base, added to what is given; rounded once.
///
///   grad_pre_mix, grad_post_mix, post_mix   f32 [.., n]
///   grad_comb_logits                        f32 [.., n, n]
///   input_mixes                             f32 [.., n (n + 2)]
///   scale, grad_scale                       f32 [3], null = zeros
///   base, grad_base                         f32 [n (n + 2)], null = zeros
struct SplitMixInputs {
  const test::HostTensor &grad_pre_mix, &grad_post_mix, &grad_comb_logits;
  const test::HostTensor &input_mixes, &post_mix, &scale, &base;
  const test::HostTensor *grad_scale, *grad_base;
};
SplitMixGradients pre_split_mixes_bwd(const SplitMixInputs& in, double post_mult);

}  // namespace tessera::reference
