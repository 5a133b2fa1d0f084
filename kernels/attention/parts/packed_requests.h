#pragma once
// The place of a tile of query rows among requests that lie one behind the other.

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// `cu_q`, `cu_k`: [bounds], where requests end. Bounds that do not ascend, or lie outside of the tensors, are cut.
struct PackedRequests {
  dsl::Value bounds, q_rows, k_rows;
  dsl::Ref cu_q, cu_k;
};

/// Rows of the tensors where the request begins, and of the request where the tile begins. Rows behind all
/// requests form a last one without keys. A tile behind all rows is empty.
struct PackedPlace {
  dsl::Value q_first, q_length, k_first, k_length, row;
};

/// The place of tile `tile`, of `rows` rows of one request. All threads of the block.
PackedPlace find_packed(dsl::Builder& k, const PackedRequests& requests, const dsl::Value& tile,
                        int64_t rows);

}  // namespace tessera::kernels::attention
