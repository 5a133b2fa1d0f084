#pragma once
// The tiles of products whose rows belong to groups that come one after the other.

#include <cstdint>
#include <functional>
#include <optional>

#include "dsl/builder.h"

namespace tessera::kernels::gemm {

/// A tile of out: the matrix and its first row, the end of the rows that are written, the group, the tile of columns.
struct GroupTile {
  dsl::Value slab, row, end, group, across;
};

enum class GroupRows {
  by_ends,  // one matrix; group g has rows align(psum[g - 1], alignment) .. psum[g] - 1, where psum[-1] = 0
  by_counts  // a matrix for each group; group g has rows 0 .. masked_m[g] - 1 of its own
};

class GroupTiles {
 public:
  /// Declares psum i32 [groups] and the scalar alignment, or masked_m i32 [groups]. `rows`: of a matrix.
  GroupTiles(dsl::Builder& k, GroupRows kind, const dsl::Value& groups, const dsl::Value& rows);

  /// Calls body(tile) for the tiles of `tile_rows` rows, `across` of them side by side, that block `block` of `blocks`
  /// takes in turn; in the same order in every role.
  void each(const dsl::Value& block, const dsl::Value& blocks, int64_t tile_rows,
            const dsl::Value& across, const std::function<void(const GroupTile&)>& body) const;

 private:
  /// 32 groups, one per lane: the end of its rows and its rows.
  struct Lanes {
    dsl::Value end, rows;
  };
  Lanes lanes(const dsl::Value& first, const dsl::Value& end_before, bool is_reported) const;

  dsl::Builder& k_;
  const GroupRows kind_;
  dsl::Value groups_, rows_;
  std::optional<dsl::Ref> ends_or_counts_;
  dsl::Value alignment_;
};

}  // namespace tessera::kernels::gemm
