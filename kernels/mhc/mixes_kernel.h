#pragma once
// The kernel of pre_big_fuse between its projection and its weighted sum.

#include "dsl/ir/tile.h"
#include "kernels/mhc/projection.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct MixesSpec {
  int32_t streams, width;
  PartSum sum;
};

/// Tensors: the products and squares of the projection (product_parts, square_parts) if there are
/// columns; scale, base; pre_mix, post_mix, comb_mix. Scalars: norm_eps, pre_eps, sinkhorn_eps,
/// post_mult_value, sinkhorn_repeat.
ir::Kernel build_mixes(const MixesSpec& s);

}  // namespace tessera::kernels::mhc
