#include "codegen/cpu/warp_clocks.h"

#include <algorithm>

namespace tessera::codegen::cpu {

WarpClocks::WarpClocks(int blocks, int threads)
    : per_block_(static_cast<size_t>(threads + 31) / 32),
      warps_(static_cast<size_t>(blocks) * per_block_),
      known_(warps_ * warps_, 0),
      lanes_(warps_, 1) {
  for (size_t warp = 0; warp < warps_; ++warp) at(warp, warp) = now_;
}

void WarpClocks::meet(size_t first, size_t end) {
  ++now_;
  together_.assign(warps_, 0);
  for (size_t warp = first; warp < end; ++warp) {
    for (size_t other = 0; other < warps_; ++other) {
      together_[other] = std::max(together_[other], at(warp, other));
    }
  }
  for (size_t warp = first; warp < end; ++warp) {
    std::copy(together_.begin(), together_.end(), &at(warp, 0));
    at(warp, warp) = now_;
    ++lanes_[warp];
  }
}

void WarpClocks::block_barrier(int block) {
  const size_t first = static_cast<size_t>(block) * per_block_;
  meet(first, first + per_block_);
}

void WarpClocks::cluster_barrier() {
  meet(0, warps_);
  start_ = now_;
}

void WarpClocks::release(int warp, Moment& into) {
  const size_t self = index(warp);
  into.resize(warps_, 0);
  for (size_t other = 0; other < warps_; ++other) {
    into[other] = std::max(into[other], at(self, other));
  }
  at(self, self) = ++now_;
}

void WarpClocks::acquire(int warp, const Moment& from) {
  const size_t self = index(warp);
  for (size_t other = 0; other < from.size(); ++other) {
    if (other != self) at(self, other) = std::max(at(self, other), from[other]);
  }
}

}  // namespace tessera::codegen::cpu
