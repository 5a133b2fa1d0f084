#pragma once
// The kernel of the projection: partial sums of the products with fn and of the squares.

#include "dsl/ir/tile.h"
#include "kernels/mhc/parts/projection_spec.h"

namespace tessera::kernels::mhc {

/// Tensors: residual [tokens, width], fn [entries, width], norm_weight [width] if there is one; the
/// products and squares (product_parts, square_parts). Scalar: row_blocks, the number of runs of
/// tiles, none of them empty.
ir::Kernel build_projection(const ProjectionSpec& s);

}  // namespace tessera::kernels::mhc
