#include "codegen/cpu/races/warp_clocks.h"

#include <algorithm>

namespace tessera::codegen::cpu {

WarpClocks::WarpClocks(int blocks, int threads, int signals)
    : per_block_(static_cast<size_t>(threads + 31) / 32),
      warps_(static_cast<size_t>(blocks) * per_block_),
      width_(warps_ + static_cast<size_t>(std::min(signals, kMostSignals))),
      known_(warps_ * width_, 0),
      lanes_(warps_, 1) {
  for (size_t warp = 0; warp < warps_; ++warp) at(warp, warp) = now_;
}

void WarpClocks::join_all(size_t first, size_t end) {
  ++now_;
  joined_.assign(width_, 0);
  for (size_t warp = first; warp < end; ++warp) {
    for (size_t other = 0; other < width_; ++other) {
      joined_[other] = std::max(joined_[other], at(warp, other));
    }
  }
  for (size_t warp = first; warp < end; ++warp) {
    std::copy(joined_.begin(), joined_.end(), &at(warp, 0));
    at(warp, warp) = now_;
    ++lanes_[warp];
  }
}

void WarpClocks::block_barrier(int block) {
  const size_t first = static_cast<size_t>(block) * per_block_;
  join_all(first, first + per_block_);
}

void WarpClocks::cluster_barrier() {
  join_all(0, warps_);
  start_ = now_;
}

void WarpClocks::release(int warp, VectorClock& into) {
  const size_t self = index(warp);
  into.resize(width_, 0);
  for (size_t other = 0; other < width_; ++other) {
    into[other] = std::max(into[other], at(self, other));
  }
  at(self, self) = ++now_;
}

void WarpClocks::copy_clock(int warp, VectorClock& into) const {
  const auto first = known_.begin() + static_cast<std::ptrdiff_t>(index(warp) * width_);
  into.assign(first, first + static_cast<std::ptrdiff_t>(width_));
}

uint32_t WarpClocks::land(int signal, VectorClock& into) {
  into.resize(width_, 0);
  return into[index(signal)] = ++now_;
}

void WarpClocks::acquire(int warp, const VectorClock& from) {
  const size_t self = index(warp);
  for (size_t other = 0; other < from.size(); ++other) {
    if (other != self) at(self, other) = std::max(at(self, other), from[other]);
  }
}

}  // namespace tessera::codegen::cpu
