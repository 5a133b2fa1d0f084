#pragma once
// The place of a tile of rows among requests that lie one behind the other.

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// One side of the requests, queries or keys: rows of its tensors, and where requests end in them, [bounds]. Bounds that
/// do not ascend, or lie outside of the tensors, are cut.
struct PackedSide {
  const char* letter;  // of the argument: cu_q or cu_k
  dsl::Value rows;
  dsl::Ref ends;
};

/// Where the request of a tile begins in the tensors of both sides, its rows there, and where in it the tile begins. Rows
/// behind all requests form a last one, in which the other side has no rows. A tile behind all rows is empty.
struct PackedPlace {
  dsl::Value first, length, other_first, other_length, row;
};

enum class TileOrder { first_rows_first, last_rows_first };

/// The place of tile `tile`, of `size` rows of one request. All threads of the block.
PackedPlace find_packed(dsl::Builder& k, const dsl::Value& bounds, const PackedSide& tiled,
                        const PackedSide& other, const dsl::Value& tile, int64_t size,
                        TileOrder order);

}  // namespace tessera::kernels::attention
