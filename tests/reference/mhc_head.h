#pragma once
// The weights of the residual streams that the head reads, by definition, in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// sigmoid(m * scale + base[i]) + pre_eps of each entry, rounded once.
///
///   input_mix   f32 [.., n], any row pitch
///   scale       f32 [1]
///   base        f32 [n]
///   returns     f32 [.., n]
///
/// Example: zeros everywhere give 0.5 + pre_eps.
test::HostTensor head_compute_mix_fwd(const test::HostTensor& input_mix,
                                      const test::HostTensor& scale, const test::HostTensor& base,
                                      double pre_eps);

struct HeadGradients {
  test::HostTensor input_mix, scale, base;
};

/// Its gradients: with s = sigmoid(m * scale + base[i]) and g = s (1 - s) grad_out, g * scale for each
/// entry; the sums over all tokens of g * m for scale and of g for base, added to what is given.
///
///   grad_out, input_mix     f32 [.., n]
///   scale, grad_scale       f32 [1], null = zeros
///   base, grad_base         f32 [n], null = zeros
///
/// Example: one token, n = 1, grad_out 1, m 0, scale 2, base 0: input_mix 0.5, scale 0, base 0.25.
HeadGradients head_compute_mix_bwd(const test::HostTensor& grad_out,
                                   const test::HostTensor& input_mix, const test::HostTensor& scale,
                                   const test::HostTensor& base, const test::HostTensor* grad_scale,
                                   const test::HostTensor* grad_base);

}  // namespace tessera::reference
