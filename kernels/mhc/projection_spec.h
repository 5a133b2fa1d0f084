#pragma once
// What the projection kernel is made from, and the tile of the residual that follows from it.

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
  int32_t adds_late;  // 0 or 1: the warps' sums of a tile are added beside the next tile's products

  /// Of a block: its warps and its columns, each warp's share of which lies together.
  int64_t warps() const { return 8 / halves; }
  int64_t columns() const { return part_columns / halves; }
  /// Rows of a tile: those of few columns come in pairs of matrices, so that a round has work enough
  /// for its barriers.
  bool has_paired_matrices() const;
  int64_t rows() const;
  /// The residual comes by bulk copies of rows. Rows that end within a part are none.
  bool by_row() const {
    return is_last_reader != 0 && halves == 1 && align % 16 == 0 && width % part_columns == 0;
  }
  /// How far the tiles are copied ahead.
  dsl::PipelineOptions copies_ahead() const;
  /// Columns of a row of a tile in shared memory.
  int64_t row_columns() const { return columns() + kPadding; }
  /// Bytes of shared memory: one tile; everything else.
  int64_t tile_bytes() const;
  int64_t other_bytes() const;

  // Columns. Puts neighbouring rows half of the banks apart: 8 lanes that read two rows do not collide.
  static constexpr int64_t kPadding = 32;
};

}  // namespace tessera::kernels::mhc
