#pragma once
// The steps before a sub-layer, by definition: the projection of the normalised residual,
// and all of it in one.

#include <cstdint>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The nearest tf32 value, ties away from zero, the 13 low bits clear; too large gives infinity,
/// NaN gives 0x7FFFFFFF.
///
/// Example: 1 + 2^-11 gives 1 + 2^-10.
float round_to_tf32(float value);
/// The result for each element.
test::HostTensor round_to_tf32(const test::HostTensor& x);

struct NormFnResult {
  test::HostTensor out, out_mul, sqrsum;
};

/// With y the row of K = n * H columns and F' = round_to_tf32(fn * norm_weight), the product rounded
/// to f32: out_mul = F' y, sqrsum = |y|^2, out = out_mul / sqrt(sqrsum / K + eps); in f64, rounded
/// once. Where runs of columns begin and end does not matter here.
///
///   residual      bf16 [.., n, H]
///   fn            f32  [M, n * H]
///   norm_weight   f32  [n * H], null = ones
///   returns       f32 [.., M], f32 [.., M], f32 [..]
///
/// Example: one row of zeros gives zeros.
NormFnResult norm_fn_fwd(const test::HostTensor& residual, const test::HostTensor& fn,
                         const test::HostTensor* norm_weight, double eps);

struct PreBigFuseOptions {
  double norm_eps = 1e-6, pre_eps = 1e-6, sinkhorn_eps = 1e-6, post_mult = 1;
  int64_t sinkhorn_repeat = 10;
};
struct PreBigFuseResult {
  test::HostTensor post_mix, comb_mix, layer_input;
};

/// The chain norm_fn_fwd, pre_split_mixes_fwd, sinkhorn_fwd, pre_apply_mix_fwd.
///
///   residual, fn, norm_weight   as norm_fn_fwd, M = n (n + 2)
///   scale                       f32 [3]
///   base                        f32 [M]
///   returns                     f32 [.., n], f32 [.., n, n], bf16 [.., H]
PreBigFuseResult pre_big_fuse(const test::HostTensor& residual, const test::HostTensor& fn,
                              const test::HostTensor& scale, const test::HostTensor& base,
                              const test::HostTensor* norm_weight,
                              const PreBigFuseOptions& options);

}  // namespace tessera::reference
