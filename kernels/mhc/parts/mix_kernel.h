#pragma once
// The kernel of the mixes, for pre_big_fuse and for mhc_pre_fwd, which saves more outputs.

#include "dsl/ir/tile.h"
#include "kernels/mhc/parts/part_sum.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct MixSpec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of the residual and the layer input
  int32_t save;   // 0 or 1: saves the inputs of the backward ops
  PartSum sum;
};

/// Tensors: with columns the products and squares of the projection (product_parts, square_parts),
/// residual [tokens, streams, hidden] and layer_input [tokens, hidden]; scale, base; post_mix,
/// comb_mix; out_mul, sqrsum, input_mixes, pre_mix, comb_logits if they are saved. Scalars: norm_eps,
/// pre_eps, sinkhorn_eps, post_mult_value, sinkhorn_repeat.
ir::Kernel build_mix(const MixSpec& s);

}  // namespace tessera::kernels::mhc
