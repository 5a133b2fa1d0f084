#pragma once
// When each warp of a block does what Builder::mark has named: on a GPU in cycles, on the CPU in steps of the executor.

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::kernels::jit {

/// The timeline of one block of a launch.
struct Timeline {
  /// A mark from its begin to its end.
  struct Bar {
    int mark = 0;                // in `marks`
    int64_t begin = 0, end = 0;  // from the first begin of any warp on
    int depth = 0;               // marks around it
  };
  /// One warp.
  struct Row {
    int warp = 0;
    std::string role;       // empty: none
    std::vector<Bar> bars;  // by begin, outer before inner
    int64_t dropped = 0;    // begins and ends that did not fit, after 1023
  };
  std::string kernel;
  int64_t block = 0;
  std::string unit;  // "cycles" of the multiprocessor's clock, or "steps" of the executor
  std::vector<std::string> marks;  // names; the last one, "wait", is of waits for a stage of a ring
  std::vector<Row> rows;           // of warps that came to a mark
};

/// While it lives, kernels that this thread's calls run note the marks of one block, and each call waits for its kernels.
/// They are other kernels than without it: each is compiled once more. Scopes nest; the innermost gets the timelines.
/// Kernels in a capture cannot be waited for: driver error.
///
///   jit::TimelineScope scope;
///   gemm({{a, b, c}}, {}, stream);  // a Function, or a shipped op
///   std::puts(tools::timeline_text(scope.timelines().front()).c_str());
class TESSERA_API TimelineScope {
 public:
  /// `block`: its number in the grid, with x fastest.
  explicit TimelineScope(int64_t block = 0);
  ~TimelineScope();
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

  /// One for each kernel run, in order.
  const std::vector<Timeline>& timelines() const { return timelines_; }

  int64_t block() const { return block_; }
  void add(Timeline timeline) { timelines_.push_back(std::move(timeline)); }

 private:
  TimelineScope* outer_;
  int64_t block_;
  std::vector<Timeline> timelines_;
};

}  // namespace tessera::kernels::jit
