#pragma once
// The kernel of norm_fwd and norm_fwd_and_per_token_cast.

#include "kernels/serving/norm/parts/norm_output.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Everything that generated code depends on.
struct NormSpec {
  NormOutputSpec out;
  bool has_residual;
  int8_t width;       // columns per load of x and residual
  bool keeps_weight;  // in registers, for all rows of a block
  uint8_t unused = 0;
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
