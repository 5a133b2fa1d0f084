#pragma once
// per_token_cast of an x that is already quantised: casts codes times scales again, without a pass
// through memory.

#include "kernels/quant/parts/token_cast.h"

namespace tessera::kernels {

/// Builds the kernel with the tensors x, x_sf, out, out_sf.
ir::Kernel build_recast(const TokenCastSpec& spec);

}  // namespace tessera::kernels
