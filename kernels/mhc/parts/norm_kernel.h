#pragma once
// The kernel of norm_fn_fwd after the projection.

#include "dsl/ir/tile.h"
#include "kernels/mhc/parts/part_sum.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct NormSpec {
  int32_t entries, width;
  int32_t save;            // 0 or 1: out_mul and sqrsum
  int32_t has_few_tokens;  // 0 or 1: affects speed only
  PartSum sum;
};

/// Tensors: the products and squares of the projection (product_parts, square_parts) if there are
/// columns; out [tokens, entries]; out_mul [tokens, entries] and sqrsum [tokens] if they are saved.
/// Scalar: norm_eps.
ir::Kernel build_norm(const NormSpec& s);

}  // namespace tessera::kernels::mhc
