#pragma once
// per_token_cast of an x that is quantised already: its codes times its scales are cast again,
// without the way through memory.

#include "kernels/quant/token_cast.h"

namespace tessera::kernels {

/// The kernel: x, x_sf, out, out_sf.
ir::Kernel build_recast(const TokenCastSpec& spec);

}  // namespace tessera::kernels
