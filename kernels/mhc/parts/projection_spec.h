#pragma once
// The Spec of the projection kernel, and the tile of the residual that follows from it.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct ProjectionSpec {
  int32_t entries, width, part_columns;
  int32_t halves;                      // 2: blocks of half a part
  int32_t has_weight, is_last_reader;  // 0 or 1
  int32_t align, fn_align, workspace_align;
  int32_t most_tiles;  // of the residual that fit into shared memory
  // 0 or 1: the sums of a tile's warps are added during the next tile's products.
  int32_t adds_late;

  /// Warps and columns of a block; each warp's columns are contiguous.
  int64_t warps() const { return 8 / halves; }
  int64_t columns() const { return part_columns / halves; }
  /// Rows of a tile. Tiles of few columns take pairs of matrices, so that one round has enough work
  /// between barriers.
  bool has_paired_matrices() const;
  int64_t rows() const;
  /// True if bulk copies of rows load the residual. Rows that end within a part cannot.
  bool by_row() const {
    return is_last_reader != 0 && halves == 1 && align % 16 == 0 && width % part_columns == 0;
  }
  /// The number of tiles copied ahead.
  dsl::PipelineOptions copies_ahead() const;
  /// Columns of a row of a tile in shared memory.
  int64_t row_columns() const { return columns() + kPadding; }
  /// Bytes of shared memory: of one tile; of everything else.
  int64_t tile_bytes() const;
  int64_t other_bytes() const;

  // In columns. Shifts neighbouring rows by half of the banks: 8 lanes that read two rows have no bank
  // conflict.
  static constexpr int64_t kPadding = 32;
};

}  // namespace tessera::kernels::mhc
