#pragma once
// Root mean square norm of rows, by definition.

#include <string>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct NormOptions {
  double eps = 0, out_scale = 1;
  bool save_rstd = false;
  // of the cast
  int64_t num_per_channels = 32;
  std::string sf_layout = "row_major";
  bool round_sf = false, save_bf16 = false;
  int64_t mega_moe_block_m = 0;
};

/// n = round(x + residual); r = 1 / sqrt(lane_sum of squares / H + eps); y = (n r) (weight out_scale);
/// out = round(y).
///
///   tensors   x bf16 or f32 [T.., H]; weight [H], residual [T.., H] of its dtype, or none
///   returns   out; residual_out with residual; rstd [T..] if asked for
test::HostTensors norm_fwd(const test::HostTensors& tensors, const NormOptions& options);

/// per_token_cast of norm_fwd: out, out_sf, and by request out_bf16, residual_out, rstd. Token t stores
/// the exponent of group g in byte g % 4 of mega_moe_sf [R, H / 128] at row (t / M) A + (i / 128) 128 +
/// (i % 32) 4 + i % 128 / 32 and column g / 4, where M is the block, A is M rounded up to 128, i = t % M.
test::HostTensors norm_fwd_and_per_token_cast(const test::HostTensors& tensors,
                                              const NormOptions& options);

/// xh = x r; g = grad_out out_scale; q = g weight; d = lane_sum of xh q; grad_x = (q - xh (d / H)) r +
/// grad_residual_out. grad_weight adds xh g by fma over runs of ceil(T / 264) tokens from +0, then the
/// runs, then adds the sum to what is there.
test::HostTensors norm_bwd(const test::HostTensors& tensors, const NormOptions& options);

}  // namespace tessera::reference
