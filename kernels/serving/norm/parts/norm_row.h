#pragma once
// A row of a [tokens, hidden] matrix in the threads of a block, and the sum over it that the norms share.
//
// The sum is that of 512 lanes, whatever the number of threads. Quad q, columns 4q .. 4q + 3, belongs to
// lane q % 512, which adds its columns in ascending order from +0. Groups of 32 lanes are added in pairs
// at distance 1, 2, 4, 8, 16, and the sums of the groups in ascending order. Here a thread has runs of 8
// columns, 2048 columns apart, so it is two neighbouring lanes: their pair is the first distance, and
// half a warp is a group. Lanes without columns would add +0, which changes no bit.

#include <cstdint>
#include <functional>
#include <utility>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kRowRun = 8;  // columns

/// Threads of a row and rows of a block. A row of more than 2048 columns has several steps.
struct RowTile {
  int64_t threads;  // of a row: whole warps
  int64_t steps;    // runs of a thread
  int64_t rows;     // of a block
  bool ragged;      // some runs lie beyond the row

  int block_threads() const { return static_cast<int>(threads * rows); }
};

/// The tile of rows of `hidden` columns, a multiple of 8. `shares_blocks`: short rows stand several to a
/// block.
RowTile pick_row_tile(int64_t hidden, bool shares_blocks);

class NormRow {
 public:
  NormRow(dsl::Builder& k, int64_t hidden, const RowTile& tile);

  const RowTile& tile() const { return tile_; }
  /// The row of the block that the thread belongs to, and the thread's place in it.
  const dsl::Value& row() const { return row_; }
  const dsl::Value& thread() const { return thread_; }

  /// Calls body(first column) of the run in that step if it lies in the row.
  void in_row(int64_t step, const std::function<void(const dsl::Value& column)>& body) const;
  /// Loads the run of `from` at `column` into `run` [8], in accesses of `width` columns.
  void load(const dsl::Ref& from, const dsl::Value& column, const dsl::Ref& run,
            int64_t width) const;
  /// Stores it, cast to the dtype of `to`.
  void store(const dsl::Ref& run, const dsl::Ref& to, const dsl::Value& column,
             int64_t width) const;
  /// Registers for the thread's columns, [steps, 8].
  dsl::Ref local(DType dtype, const char* name) const;
  /// Sets them to 0 where runs may lie beyond the row.
  void clear(const dsl::Ref& values) const;

  /// The sum of the products of all columns of the row, in all its threads. All threads of the block come
  /// together.
  using Factors =
      std::function<std::pair<dsl::Value, dsl::Value>(int64_t step, const dsl::Value& i)>;
  dsl::Value sum(const Factors& factors) const;

 private:
  dsl::Builder& k_;
  const int64_t hidden_;
  const RowTile tile_;
  dsl::Value row_, thread_;
};

}  // namespace tessera::kernels::serving
