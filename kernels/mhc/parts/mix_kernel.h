#pragma once
// The kernel of the mixes, for pre_big_fuse, for pre_big_fuse_and_norm, which norms the layer input, and for
// mhc_pre_fwd, which saves more outputs.

#include "dsl/ir/tile.h"
#include "kernels/mhc/parts/part_sum.h"
#include "kernels/serving/norm/parts/norm_output.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct MixSpec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of the residual and the layer input
  int32_t save;   // 0 or 1: saves the inputs of the backward ops
  PartSum sum;
  int32_t has_norm;          // 0 or 1: norms the layer input
  int32_t save_layer_input;  // 0 or 1: stores it; always without a norm
  serving::NormOutputSpec norm;
};

/// Tensors: with columns the products and squares of the projection (product_parts, square_parts),
/// residual [tokens, streams, hidden] and layer_input [tokens, hidden]; scale, base; post_mix,
/// comb_mix; out_mul, sqrsum, input_mixes, pre_mix, comb_logits if they are saved; with a norm those of
/// NormOutput. Scalars: norm_eps, pre_eps, sinkhorn_eps, post_mult_value, sinkhorn_repeat; with a norm
/// rms_eps, out_scale.
ir::Kernel build_mix(const MixSpec& s);

}  // namespace tessera::kernels::mhc
