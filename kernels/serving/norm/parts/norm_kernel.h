#pragma once
// The kernel of norm_fwd and norm_fwd_and_per_token_cast.

#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels::serving {

/// Everything that generated code depends on.
struct NormSpec {
  DType dtype;
  SfLayout sf_layout;
  bool has_weight, has_residual, save_rstd;
  bool round_sf, save_bf16, has_mega;
  int8_t width, weight_width;  // columns per load of x and residual, and of the weight
  int16_t group;               // columns of a scale; 0: no cast
  int32_t hidden;
};

/// Tensors: x, residual [tokens, hidden] rows; weight [hidden]; out, residual_out, out_bf16 [tokens,
/// hidden]; rstd [tokens]; out_sf; mega_moe_sf as u8 [words, mega_rows, 4]. Scalars: norm_eps, out_scale,
/// tiles_per_block, and mega_moe_block_m with mega_moe_sf.
ir::Kernel build_norm(const NormSpec& spec);

/// The Spec of a call without its cast.
NormSpec norm_spec(const Call& c);
/// Adds the kernel to a call.
void add_norm(const Call& c, Launches& go, const NormSpec& spec, Args args = {});

/// Rows of mega_moe_sf that `tokens` tokens need, in blocks of `block`.
int64_t mega_rows(int64_t tokens, int64_t block);

}  // namespace tessera::kernels::serving
