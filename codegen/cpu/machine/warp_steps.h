#pragma once
// The step of each warp of a block: see marks.cpp.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "codegen/cpu/machine/cursor.h"

namespace tessera::codegen::cpu {

/// Empty where nobody asks for marks; then nothing is counted.
class WarpSteps {
 public:
  void begin(int warps) { steps_.assign(static_cast<size_t>(warps), 0); }
  bool are_counted() const { return !steps_.empty(); }
  int64_t of(int warp) const { return steps_[static_cast<size_t>(warp)]; }

  void add(const Mask& mask, int64_t cost) {
    for_each_active_warp(mask, [&](int warp) { steps_[static_cast<size_t>(warp)] += cost; });
  }
  /// The warps have waited until that step.
  void go_on_at(const Mask& mask, int64_t step) {
    if (!are_counted()) return;
    for_each_active_warp(mask, [&](int warp) { go_on_at(warp, step); });
  }
  void go_on_at(int warp, int64_t step) {
    int64_t& own = steps_[static_cast<size_t>(warp)];
    own = std::max(own, step);
  }
  /// The largest step of the warps; 0 if none is counted.
  int64_t last(const Mask& mask) const {
    int64_t last = 0;
    if (!are_counted()) return last;
    for_each_active_warp(mask, [&](int warp) { last = std::max(last, of(warp)); });
    return last;
  }

 private:
  std::vector<int64_t> steps_;  // by warp
};

}  // namespace tessera::codegen::cpu
