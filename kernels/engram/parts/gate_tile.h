#pragma once
// The assignment of a row's columns to the threads of a block. It depends only on the number of
// columns, because the sums over a row depend on it.

#include <algorithm>
#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::engram {

inline constexpr int64_t kRun = 8;  // columns: one vector of bf16

/// Thread t holds `runs` runs of kRun columns: runs t, t + threads, ...
struct GateTile {
  int64_t threads, runs;
  bool ragged;  // the last run of some threads lies beyond the row
};

/// Four runs per thread if that divides the row (7168 = 4 x 224 x 8, 4096 = 4 x 128 x 8): 16-byte
/// loads of three rows are 192 bytes in flight per thread, and the weights of a run fit in
/// registers. Else 5, 3, 2 or 1 runs; else the last run is ragged. Rows beyond 32768 columns take
/// 1024 threads.
inline GateTile pick_gate_tile(int64_t hidden) {
  const int64_t warps_of_runs = hidden / kRun / 32;
  for (const int64_t runs : {4, 5, 3, 2, 1}) {
    const int64_t warps = warps_of_runs / runs;
    if (warps_of_runs % runs == 0 && warps >= 2 && warps <= 16) return {warps * 32, runs, false};
  }
  const int64_t runs = std::max<int64_t>(4, (warps_of_runs + 31) / 32);
  const int64_t warps = (warps_of_runs + runs - 1) / runs;
  return {warps * 32, runs, warps * runs != warps_of_runs};
}

/// As few runs as 512 threads allow: one up to 4096 columns, two up to 8192. A thread of the
/// backward pass holds twelve rows of a run.
inline GateTile pick_gate_bwd_tile(int64_t hidden) {
  const int64_t warps_of_runs = hidden / kRun / 32;
  const int64_t runs = std::max<int64_t>((warps_of_runs + 15) / 16, 1);
  const int64_t warps = (warps_of_runs + runs - 1) / runs;
  return {warps * 32, runs, warps * runs != warps_of_runs};
}

/// The part of a row in one thread: runs of 8 columns.
class Columns {
 public:
  Columns(dsl::Builder& k, int64_t hidden, GateTile tile) : k_(k), hidden_(hidden), tile_(tile) {}

  const GateTile& tile() const { return tile_; }
  /// Calls body(first column) if the run lies in the row.
  template <class Fn>
  void in_row(const dsl::Value& run, const Fn& body) const {
    auto col = k_.let("col", (run * tile_.threads + k_.thread()) * kRun);
    if (tile_.ragged) {
      k_.if_(col < hidden_, [&] { body(col); });
    } else {
      body(col);
    }
  }
  /// Calls body(offset in the run) inside a vector loop of `width` columns.
  template <class Fn>
  void in_run(int64_t width, const Fn& body) const {
    k_.unrolled(kRun / width, [&](dsl::Value piece) {
      k_.vectorized(width, [&](dsl::Value i) { body(piece * width + i); });
    });
  }
  /// Loads the columns from `col` on of `row`.
  void load_run(int64_t width, const dsl::Ref& row, const dsl::Value& col,
                const dsl::Ref& run) const {
    in_run(width, [&](const dsl::Value& i) { run(i) = row(col + i); });
  }
  /// Stores them, cast to the dtype of `row`.
  void store_run(int64_t width, const dsl::Ref& run, const dsl::Ref& row,
                 const dsl::Value& col) const {
    in_run(width, [&](const dsl::Value& i) { row(col + i) = dsl::cast(row.dtype(), run(i)); });
  }
  /// Calls body(run, column, offset in the run) for all runs, inside vector loops of `width` columns.
  template <class Fn>
  void each(int64_t width, const Fn& body) const {
    using namespace dsl;
    k_.unrolled(tile_.runs, [&](Value run) {
      in_row(run, [&](const Value& col) {
        in_run(width, [&](const Value& i) { body(run, col + i, i); });
      });
    });
  }
  /// Loads the thread's part of the row `at`; zeros beyond the row.
  template <class Fn>
  dsl::Ref load(const char* name, DType dtype, int64_t width, const Fn& at) const {
    auto part = k_.local(dtype, {tile_.runs, kRun}, name);
    if (tile_.ragged) {
      k_.unrolled(tile_.runs, [&](dsl::Value run) {
        k_.unrolled(kRun, [&](dsl::Value i) { part(run, i) = dsl::cast(dtype, 0.0f); });
      });
    }
    each(width, [&](const dsl::Value& run, const dsl::Value& col, const dsl::Value& i) {
      part(run, i) = at(col);
    });
    return part;
  }

 private:
  dsl::Builder& k_;
  int64_t hidden_;
  GateTile tile_;
};

}  // namespace tessera::kernels::engram
