#pragma once
// The kernel of gemm_fp8_k_grouped.

#include "dsl/builder.h"
#include "kernels/gemm/parts/operand.h"
#include "kernels/gemm/parts/tile.h"

namespace tessera::kernels::gemm {

/// Everything that generated code depends on.
struct KGroupedSpec {
  Operand a, b;
  int32_t m_multiple, n_multiple, k_multiple;  // what the extents are multiples of
  Tile tile;                                   // of steps of 128
};

/// out [groups, m, n] += a [m, depth] * b [n, depth] transposed, over the columns of each group. Operands are
/// declared with their contiguous dimension last, scales as [depth / 128, m] and [depth / 128, n].
ir::Kernel build_k_grouped(const KGroupedSpec& spec);

}  // namespace tessera::kernels::gemm
