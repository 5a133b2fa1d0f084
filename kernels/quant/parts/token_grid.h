#pragma once
// The grid of one block per tile of a [tokens, hidden] matrix.

#include "dsl/builder.h"

namespace tessera::kernels {

/// The first row and column of this block's tile, and the index of the column tile.
struct TileOrigin {
  dsl::Value row, col, col_tile;
};

/// Launches one block per tile; the column tiles of one row are consecutive. One grid dimension, so
/// that the number of tokens is not limited to 65535 tiles.
inline TileOrigin launch_tiles(dsl::Builder& k, const dsl::Value& tokens, int64_t tile_rows,
                               int64_t hidden, int64_t tile_cols, int threads,
                               int min_blocks_per_sm = 0) {
  const int64_t col_tiles = (hidden + tile_cols - 1) / tile_cols;
  const auto at = k.launch({ceil_div(tokens, tile_rows) * col_tiles},
                           {.threads = threads, .min_blocks_per_sm = min_blocks_per_sm});
  const dsl::Value col_tile = at.x % col_tiles;
  return {k.let("row", at.x / col_tiles * tile_rows), k.let("col", col_tile * tile_cols), col_tile};
}

}  // namespace tessera::kernels
