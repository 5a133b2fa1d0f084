#pragma once
// The hyper-connection ops by definition, one element at a time. Where the specification fixes an
// order of roundings the steps are those of the specification, in f32; the rest is in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The input of a sub-layer: fma over the streams from +0, one rounding to bf16.
///
///   x         bf16 [.., n, H]
///   mix       f32  [.., n]
///   returns   bf16 [.., H]
///
/// Example: streams {1, 2} with mix {0.5, 0.25} give 1.
test::HostTensor pre_apply_mix_fwd(const test::HostTensor& x, const test::HostTensor& mix);

/// The residual streams behind a sub-layer: out[o] = comb[0, o] * residual[0] rounded, then fma of
/// post[o] * x, then fma of comb[i, o] * residual[i] for i = 1, 2, ...; one rounding to bf16.
///
///   x          bf16 [.., H]
///   residual   bf16 [.., n, H]
///   post_mix   f32  [.., n]
///   comb_mix   f32  [.., n, n]
///   returns    bf16 [.., n, H]
///
/// Example: n = 1, x {2}, residual {3}, post {0.5}, comb {1} give 4.
test::HostTensor post_fwd(const test::HostTensor& x, const test::HostTensor& residual,
                          const test::HostTensor& post_mix, const test::HostTensor& comb_mix);

/// Each row in every stream, bits unchanged.
///
///   x         bf16 [.., H]
///   returns   bf16 [.., num_streams, H]
///
/// Example: x {{1, 2}} with 2 streams gives {{{1, 2}, {1, 2}}}.
test::HostTensor expand_to_mhc_fwd(const test::HostTensor& x, int64_t num_streams);

/// Softmax over the last axis plus eps, then columns divided by (sum + eps), then repeat - 1 times
/// rows and columns; in f64 from start to end, rounded once.
///
///   x         f32 [.., n, n]
///   returns   f32 [.., n, n]
///
/// Example: n = 1 gives (1 + eps) / (1 + 2 eps) for repeat 1.
test::HostTensor sinkhorn_fwd(const test::HostTensor& x, int64_t repeat, double eps);

struct SplitMixes {
  test::HostTensor pre_mix, post_mix, comb_logits;
};

/// The mixes of a sub-layer: with z_j = m_j * scale + base_j, sigmoid(z) + pre_eps of the first n
/// entries (scale[0]), sigmoid(z) * post_mult of the next n (scale[1]), z of the rest (scale[2]); in
/// f64, rounded once.
///
///   input_mixes   f32 [.., n (n + 2)]
///   scale         f32 [3]
///   base          f32 [n (n + 2)]
///   returns       f32 [.., n], f32 [.., n], f32 [.., n, n]
///
/// Example: n = 1, zeros everywhere: pre_mix 0.5 + pre_eps, post_mix post_mult / 2, comb_logits 0.
SplitMixes pre_split_mixes_fwd(const test::HostTensor& input_mixes, const test::HostTensor& scale,
                               const test::HostTensor& base, double post_mult, double pre_eps);

}  // namespace tessera::reference
