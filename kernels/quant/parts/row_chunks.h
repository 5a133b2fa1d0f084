#pragma once
// Whole rows in the registers of a block, in chunks of one vector per thread.

#include "dsl/layout/layout.h"
#include "kernels/quant/parts/token_cast.h"

namespace tessera::kernels {

/// The layouts of the chunks. Each group of `group` columns has a scale.
struct RowChunks {
  static constexpr int64_t kVector = 8;  // columns of an access: 16 bytes of bf16

  RowChunks(int64_t hidden, int64_t group_)
      : tile(whole_row_tile(hidden, kVector)),
        rows(tile.rows),
        lanes(tile.threads / rows),
        chunk(lanes * kVector),
        chunks(tile.cols / chunk),
        group(group_) {}

  /// (rows, groups of a chunk): each scale in the threads of its group
  layout::Layout scales() const {
    const int64_t groups = chunk / group, threads = group / kVector;
    return {{rows, groups}, {{0, 1, rows, lanes, 0}, {1, 1, groups, threads, 0}}, {{threads, 1}}};
  }
  /// (rows, halves, columns of a chunk)
  layout::Layout gradients() const {
    return {{rows, 2, chunk},
            {{0, 1, rows, lanes, 0},
             {1, 1, 2, 0, kVector},
             {2, 1, kVector, 0, 1},
             {2, kVector, lanes, 1, 0}}};
  }
  /// (rows, columns of a chunk)
  layout::Layout columns() const {
    return {{rows, chunk},
            {{0, 1, rows, lanes, 0}, {1, 1, kVector, 0, 1}, {1, kVector, lanes, 1, 0}}};
  }
  /// (rows): each value in all threads of its row
  layout::Layout of_row() const { return {{rows}, {{0, 1, rows, lanes, 0}}, {{lanes, 1}}}; }

  TokenTile tile;
  int64_t rows, lanes, chunk, chunks, group;
};

}  // namespace tessera::kernels
