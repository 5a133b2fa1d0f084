#pragma once
// The tiles of products whose rows belong to groups.

#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::gemm {

/// Rows of a matrix, and the group that they belong to.
struct GroupRows {
  dsl::Value slab, begin, end, group;
};

/// A tile of out: the matrix and the first row, the end of the rows that are written, the group, the tile of columns.
struct GroupTile {
  dsl::Value slab, row, end, group, across;
};

/// How the blocks of a launch share the tiles: block, blocks, rows of a tile, tiles of columns.
struct TileShare {
  dsl::Value block, blocks;
  int64_t rows;
  dsl::Value across;
};

/// Calls body(tile) for each tile of the block. Tiles are numbered group after group, row tiles first, so blocks have as
/// many but for one, and those that run at once read the same columns. rows_of(group) may keep state: it is asked once for each of
/// 0 .. groups - 1, in order. All warps of the block, or of the role, find the same.
void each_group_tile(dsl::Builder& k, const TileShare& share, const dsl::Value& groups,
                     const std::function<GroupRows(const dsl::Value& group)>& rows_of,
                     const std::function<void(const GroupTile&)>& body);

}  // namespace tessera::kernels::gemm
