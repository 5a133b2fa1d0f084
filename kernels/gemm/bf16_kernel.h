#pragma once
// The kernel of gemm_bf16.

#include "dsl/builder.h"
#include "kernels/gemm/operand.h"
#include "kernels/gemm/tile.h"

namespace tessera::kernels::gemm {

/// Everything that generated code depends on.
struct Bf16Spec {
  Operand a, b;
  int32_t m_multiple, n_multiple, k_multiple;  // what the extents are multiples of
  int32_t out_vector;                          // elements that rows of out begin at multiples of
  int32_t has_depth, has_bias, is_f32;         // 0 or 1
  Tile tile;
};

/// out [m, n] = a [m, depth] * b [n, depth] transposed + bias [n]. Operands are declared with their
/// contiguous dimension last.
ir::Kernel build_bf16(const Bf16Spec& spec);

}  // namespace tessera::kernels::gemm
