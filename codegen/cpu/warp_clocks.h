#pragma once
// Which accesses of the warps of one cluster come before which: vector clocks, one component per warp.

#include <cstdint>
#include <vector>

namespace tessera::codegen::cpu {

inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kWarpsPerBlock = kThreadsPerBlock / 32;

/// Warps are numbered through the cluster, kWarpsPerBlock for each block. Every access of a warp
/// has the warp's time of that moment. A time is never used again, by any warp, so nothing is cleared
/// between clusters.
///
///   clocks.release(0, moment);         // warp 0 arrives somewhere
///   clocks.acquire(1, moment);         // warp 1 has waited for it
///   clocks.is_before(0, time, 1);      // true of the times of warp 0 before it arrived
class WarpClocks {
 public:
  /// What was done before some arrivals: by warp, the last time that is part of it.
  using Moment = std::vector<uint32_t>;

  WarpClocks(int blocks, int threads);

  /// The lanes of one warp meet.
  void warp_barrier(int warp) { ++lanes_[index(warp)]; }
  void block_barrier(int block);
  /// Also where a cluster begins.
  void cluster_barrier();
  /// Adds to `into` what the warp has done, and what was before that.
  void release(int warp, Moment& into);
  /// What is part of `from` comes before what the warp does from here on.
  void acquire(int warp, const Moment& from);

  /// Of what the warp does now.
  uint32_t time(int warp) const { return at(index(warp), index(warp)); }
  /// Tells the warp barriers of a warp apart.
  uint32_t lanes_time(int warp) const { return lanes_[index(warp)]; }
  /// The earliest time since the last barrier of the cluster.
  uint32_t start() const { return start_; }
  /// True if what `other` did at `time` comes before what `warp` does now. Time 0 is always before.
  bool is_before(int other, uint32_t time, int warp) const {
    return time <= at(index(warp), index(other));
  }

 private:
  size_t index(int warp) const {
    const auto number = static_cast<size_t>(warp);
    return number / kWarpsPerBlock * per_block_ + number % kWarpsPerBlock;
  }
  uint32_t at(size_t warp, size_t other) const { return known_[warp * warps_ + other]; }
  uint32_t& at(size_t warp, size_t other) { return known_[warp * warps_ + other]; }
  /// Warps [first, end) have met.
  void meet(size_t first, size_t end);

  size_t per_block_, warps_;
  uint32_t now_ = 1, start_ = 1;
  std::vector<uint32_t>
      known_;  // known_[w * warps_ + w]: the time of warp w; else what it knows of others
  std::vector<uint32_t> lanes_;
  Moment together_;  // of meet()
};

}  // namespace tessera::codegen::cpu
