#pragma once
// The gradients of norm_fn_fwd by definition: the roundings that the specification names in f32, all
// sums in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct NormFnGradients {
  test::HostTensor residual, fn, norm_weight;
};

/// With y the row of K = n * H columns, F' = round_to_tf32(fn * norm_weight), r = 1 / sqrt(sqrsum / K +
/// eps) and da = round_to_tf32(grad_out * r):
///
///   residual     += F'^T da + 2 y dq, dq = -(sum_j grad_out_j out_mul_j) r / (2 (sqrsum + K eps))
///   fn           += dF' norm_weight, dF' = sum_t da (outer) y: the rounding of F' is ignored
///   norm_weight  += sum_j dF'_j fn_j
///
///   grad_out, out_mul   f32  [.., M]
///   given.residual      bf16 [.., n, H], as residual
///   given.fn            f32  [M, n * H], as fn
///   norm_weight         f32  [n * H], as given.norm_weight; null = ones, and then not written
///   sqrsum              f32  [..]
///   given               the values that are added to
///
/// Example: no token leaves `given` as it is.
struct NormFnBwdInputs {
  const test::HostTensor &grad_out, &residual, &fn;
  const test::HostTensor* norm_weight;
  const test::HostTensor &out_mul, &sqrsum;
};
NormFnGradients norm_fn_bwd(const NormFnBwdInputs& in, NormFnGradients given, double eps);

}  // namespace tessera::reference
