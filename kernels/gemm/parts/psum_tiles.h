#pragma once
// The tiles of rows that belong to groups, by the ends of the groups' rows: group g has rows align(psum[g - 1],
// alignment) .. psum[g] - 1, where psum[-1] = 0. All other rows are padding.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::gemm {

/// A tile of the rows of one group: its first row, the end of the group's rows, and its number across.
struct PsumTile {
  dsl::Value group, row, end, across;
};

/// Declares psum i32 [groups] and the scalar alignment.
class PsumTiles {
 public:
  /// `rows`: of the matrix whose rows the groups divide.
  PsumTiles(dsl::Builder& k, const dsl::Value& groups, const dsl::Value& rows);

  /// Calls body(tile) for the tiles of `tile_rows` rows, `across` of them side by side, that block `block` of `blocks`
  /// takes in turn; in the same order in every role.
  void each(const dsl::Value& block, const dsl::Value& blocks, int32_t tile_rows,
            const dsl::Value& across, const std::function<void(const PsumTile&)>& body) const;

 private:
  /// 32 groups, one per lane: the end of its rows and its rows.
  struct Lanes {
    dsl::Value end, rows;
  };
  Lanes lanes(const dsl::Value& first, const dsl::Value& end_before, bool is_reported) const;

  dsl::Builder& k_;
  dsl::Value groups_, rows_;
  dsl::Ref psum_;
  dsl::Value alignment_;
};

}  // namespace tessera::kernels::gemm
