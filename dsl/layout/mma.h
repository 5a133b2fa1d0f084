#pragma once
// Fragment layouts of the tensor-core operands, from the tables of the PTX ISA.
//
// One warp multiplies 16 x K by K x 8 per instruction (mma.sync m16n8kK), K elements being 32 bytes:
// 8 of tf32, 16 of bf16 and f16, 32 of e4m3, e5m2 and i8. A register holds E = 32 / element_bits
// neighbours along k. The warps of a block stand in a grid; every warp owns one contiguous part of
// the product and of k. Warp w is in row w % rows, column w / rows % columns and depth w / (rows *
// columns) of the grid.
//
// Errors: Error of kind `program` if an extent is no whole number of instructions and warps.

#include "dsl/base/api.h"
#include "dsl/layout/layout.h"

namespace tessera::layout {

struct WarpGrid {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t depths = 1;  // parts of k
  friend bool operator==(const WarpGrid&, const WarpGrid&) = default;
};

/// Equal parts that the rows and the columns of a tile are made of, one after another; the whole grid
/// shares each of them.
struct GridParts {
  int64_t rows = 1;
  int64_t columns = 1;
};

/// The number of parts of an axis of `whole` elements in which `owners` share the range [first,
/// first + extent); 0 = they cannot. A single owner holds any range, so one part does for it.
///
///   equal_parts(256, 64, 64, 2)   // 4
///   equal_parts(256, 64, 128, 2)  // 0: the range begins inside of a part
TESSERA_API int64_t equal_parts(int64_t whole, int64_t first, int64_t extent, int64_t owners);

/// The product, m x n, 32-bit elements. 32 x 32 over 2 x 2 warps:
///   thread = (j / 16) * 64 + (i / 16) * 32 + (i % 8) * 4 + (j % 8) / 2,
///   slot   = ((j % 16) / 8) * 4 + ((i % 16) / 8) * 2 + j % 2
/// With several depths: depths x m x n, the product of every part of k.
TESSERA_API Layout mma_accumulator(int64_t m, int64_t n, WarpGrid grid, GridParts parts = {});

/// The left operand, m x k, with one copy per warp column. 32 x 256 of tf32 over 2 x 2 warps:
///   thread = rep * 64 + (i / 16) * 32 + (i % 8) * 4 + k % 4, slot = (k / 4) * 2 + (i % 16) / 8
TESSERA_API Layout mma_left(int64_t m, int64_t k, int element_bits, WarpGrid grid,
                            int64_t row_parts = 1);

/// The right operand, k x n, with one copy per warp row.
TESSERA_API Layout mma_right(int64_t k, int64_t n, int element_bits, WarpGrid grid,
                             int64_t column_parts = 1);

/// The product of wgmma m64nNkK; the grid counts groups of four warps.
TESSERA_API Layout wgmma_accumulator(int64_t m, int64_t n, WarpGrid groups, GridParts parts = {});

/// The left operand of wgmma in registers, with one copy per column of groups.
TESSERA_API Layout wgmma_left(int64_t m, int64_t k, int element_bits, WarpGrid groups,
                              int64_t row_parts = 1);

}  // namespace tessera::layout
