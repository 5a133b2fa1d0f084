#pragma once
// A row of a [tokens, hidden] matrix in the threads of a block, and the sum over it that the norms share.
//
// The sum is that of 512 lanes, whatever the number of threads. Quad q, columns 4q .. 4q + 3, belongs to
// lane q % 512, which adds its columns in ascending order from +0. Groups of 32 lanes are added in pairs
// at distance 1, 2, 4, 8, 16, and the sums of the groups in ascending order. Lanes without columns would
// add +0, which changes no bit.
//
// A thread has runs of 8 columns: a run is two neighbouring lanes, their pair is the first distance, and
// half a warp is a group. Runs of 4 columns are a lane each, and a warp is a group: f32 rows take them, so
// that the 16-byte accesses of a warp are adjacent. With fewer threads than runs per round of the lanes a
// thread has lanes of several groups, and a sum for each.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kRowRun = 8;  // columns

/// Threads of a row and rows of a block. A row of more runs than threads has several steps.
struct RowTile {
  int64_t threads;  // of a row: whole warps; 32 need no barrier
  int64_t steps;    // runs of a thread
  int64_t rows;     // of a block
  bool ragged;      // runs of the last step lie beyond the row
  int64_t run;      // columns: 8, or 4

  int block_threads() const { return static_cast<int>(threads * rows); }
};

/// How rows are parted among threads. No field changes a sum.
struct RowShape {
  bool shares_blocks = false;   // rows of fewer threads than a block stand several to a block
  int64_t max_threads = 256;    // of a row: 32, 128 or 256
  int64_t block_threads = 256;  // of a block that rows share
  int64_t run = kRowRun;
};

/// The tile of rows of `hidden` columns, a multiple of 8.
RowTile pick_row_tile(int64_t hidden, const RowShape& shape);

class NormRow {
 public:
  NormRow(dsl::Builder& k, int64_t hidden, const RowTile& tile);

  const RowTile& tile() const { return tile_; }
  /// The row of the block that the thread belongs to, and the thread's place in it.
  const dsl::Value& row() const { return row_; }
  const dsl::Value& thread() const { return thread_; }

  /// Calls body(first column) of the run in that step if it lies in the row.
  void in_row(int64_t step, const std::function<void(const dsl::Value& column)>& body) const;
  /// Loads the thread's run of a step into `run`; beyond the row it is that of the last columns, so that no branch
  /// separates the loads from each other.
  void load_step(const dsl::Ref& from, int64_t step, const dsl::Ref& run, int64_t width) const;
  /// Loads the runs of all steps into `values` [steps, run].
  void load_all(const dsl::Ref& from, const dsl::Ref& values, int64_t width) const;
  /// Loads the run of `from` at `column` into `run`, in accesses of `width` columns.
  void load(const dsl::Ref& from, const dsl::Value& column, const dsl::Ref& run,
            int64_t width) const;
  /// Stores it, cast to the dtype of `to`.
  void store(const dsl::Ref& run, const dsl::Ref& to, const dsl::Value& column,
             int64_t width) const;
  /// Registers for the thread's columns, [steps, run].
  dsl::Ref local(DType dtype, const char* name) const;
  /// Sets them to 0 where runs may lie beyond the row.
  void clear(const dsl::Ref& values) const;

  /// The sum of the products of all columns of the row, whatever values have beyond it, in all its threads. All threads of the block come
  /// together.
  using Factors =
      std::function<std::pair<dsl::Value, dsl::Value>(int64_t step, const dsl::Value& i)>;
  dsl::Value sum(const Factors& factors) const;

  /// The same sum in parts: lanes() before the first step, add() for each step in ascending order where the run lies in
  /// the row, total() by all threads of the block.
  using Lanes = std::vector<dsl::Ref>;
  Lanes lanes() const;
  void add(
      const Lanes& lanes, int64_t step,
      const std::function<std::pair<dsl::Value, dsl::Value>(const dsl::Value& i)>& factors) const;
  dsl::Value total(const Lanes& lanes) const;

 private:
  bool is_ragged(int64_t step) const { return tile_.ragged && step == tile_.steps - 1; }
  dsl::Value column(int64_t step) const;

  dsl::Builder& k_;
  const int64_t hidden_;
  const RowTile tile_;
  dsl::Value row_, thread_;
};

}  // namespace tessera::kernels::serving
