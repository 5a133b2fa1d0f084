#pragma once
// The kernel of gemm_bf16.

#include "dsl/builder.h"
#include "kernels/gemm/parts/operand.h"
#include "kernels/gemm/parts/tile.h"

namespace tessera::kernels::gemm {

/// Everything that generated code depends on.
struct Bf16Spec {
  Operand a, b;
  int32_t m_multiple, n_multiple, k_multiple;  // what the extents are multiples of
  int32_t out_vector;                          // elements that rows of out begin at multiples of
  int32_t has_depth, has_bias, is_f32;         // 0 or 1
  int32_t by_engine;                           // 1: the copy engine writes out
  Tile tile;
};

/// By roles, for sm_90a: 176 to 224 KiB of shared memory.
inline constexpr Tile kBf16Tiles[] = {
    {128, 256, 64, 4, 1}, {128, 192, 64, 5, 1}, {128, 176, 64, 5, 1}, {128, 144, 64, 5, 1},
    {128, 128, 64, 6, 1}, {128, 64, 128, 4, 1}, {128, 32, 128, 5, 1}, {64, 64, 128, 6, 1},
    {64, 32, 128, 8, 1},  {64, 16, 128, 9, 1}};
/// For at most 48 rows of a, the fewest columns that take them all: 192 to 200 KiB.
inline constexpr Tile kBf16Swapped[] = {{64, 8, 128, 11, 1, 1, 1},
                                        {64, 16, 128, 10, 1, 1, 1},
                                        {64, 32, 128, 8, 1, 1, 1},
                                        {64, 48, 128, 7, 1, 1, 1}};
/// For gemm::soonest. Measured: 128 x 128, 192 and 256 in 42, 60 and 74 us (H100).
inline constexpr int64_t kBf16Fixed = 40;

/// out [m, n] = a [m, depth] * b [n, depth] transposed + bias [n]. Operands are declared with their
/// contiguous dimension last.
ir::Kernel build_bf16(const Bf16Spec& spec);

}  // namespace tessera::kernels::gemm
