#pragma once
// Which products wgmma can compute.

#include "codegen/products/atoms.h"

namespace tessera::codegen {

/// The grid of groups of four warps for a product, with as many rows as it can have, or the first
/// condition that does not hold.
Fit fit_wgmma(const ProductFacts& product);

}  // namespace tessera::codegen
