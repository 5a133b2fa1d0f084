#pragma once
// The kernel of pre_big_fuse behind the projection.

#include "dsl/ir/tile.h"
#include "kernels/mhc/part_sum.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct MixSpec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of the residual and the layer input
  PartSum sum;
};

/// Tensors: the products and squares of the projection (product_parts, square_parts), residual
/// [tokens, streams, hidden], layer_input [tokens, hidden], these if there are columns; scale, base;
/// post_mix, comb_mix. Scalars: norm_eps, pre_eps, sinkhorn_eps, post_mult_value, sinkhorn_repeat.
ir::Kernel build_mix(const MixSpec& s);

}  // namespace tessera::kernels::mhc
