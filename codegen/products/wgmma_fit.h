#pragma once
// Which products wgmma can compute.

#include "codegen/products/atoms.h"

namespace tessera::codegen {

/// Returns the grid of warp groups for a product, with as many rows as possible, or the first
/// failed condition.
Fit fit_wgmma(const ProductFacts& product);

}  // namespace tessera::codegen
