#pragma once
// The tile that a block of a matrix product computes at a time.

#include <cstdint>
#include <span>

#include "dsl/base/tensor_view.h"

namespace tessera::kernels::gemm {

struct Tile {
  int32_t rows, columns;  // of out
  int32_t step;           // along k
  int32_t stages;         // buffers of a step
  int32_t by_roles;       // 1: one role loads, another multiplies
  /// By roles: so many blocks of a cluster compute neighbours in a column, and copy its tiles of b once for all.
  int32_t cluster = 1;
  /// By roles. 1: rows of the tile are rows of b and columns are rows of a, which few rows of a fill. Rows beyond the
  /// matrix take the copy engine longer than rows inside.
  int32_t is_swapped = 0;
};

/// True if the copy engine writes tiles of out: whole vectors of bf16, up to 1024 of k. The threads go on at once, and
/// multiply for less long than a tile takes to write. Longer products lose up to 5 % by it (H100).
bool is_written_by_engine(const Tile& t, const TensorView& out, int vector, int64_t depth);

/// The tile among these that computes `slabs` matrices [rows, columns] soonest on the 132 multiprocessors of an
/// H200, the first of equals. A block takes as long for a tile as the tile has elements, and for what does
/// not depend on its size as long as for `fixed` columns of a tile of 128 rows. A tile of more than 128 rows, by three groups of
/// warps, takes 12 % longer.
Tile soonest(int64_t slabs, int64_t rows, int64_t columns, std::span<const Tile> tiles,
             int64_t fixed);

}  // namespace tessera::kernels::gemm
