#pragma once
// Which accesses of the warps of one cluster come before which: vector clocks, with a component for each
// warp and one for the copies that complete at each mbarrier.

#include <cstdint>
#include <vector>

namespace tessera::codegen::cpu {

inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kWarpsPerBlock = kThreadsPerBlock / 32;
/// Mbarriers are numbered after the warps of a cluster; the last number is for all that are left.
inline constexpr int kFirstSignal = 16 * kWarpsPerBlock, kMostSignals = 511;

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

  /// `signals`: how many mbarriers the cluster has.
  WarpClocks(int blocks, int threads, int signals = 0);

  /// The lanes of one warp meet.
  void warp_barrier(int warp) { ++lanes_[index(warp)]; }
  void block_barrier(int block);
  /// Also where a cluster begins.
  void cluster_barrier();
  /// Adds to `into` what the warp has done, and what was before that.
  void release(int warp, Moment& into);
  /// Copies that complete at mbarrier kFirstSignal + n have landed, and are part of `into`. Their time.
  uint32_t land(int signal, Moment& into);
  /// What is part of `from` comes before what the warp does from here on.
  void acquire(int warp, const Moment& from);

  /// What is before what the warp does now.
  void look(int warp, Moment& into) const;
  /// True if what `warp` did at `time` is part of `moment`.
  bool is_part(int warp, uint32_t time, const Moment& moment) const {
    return index(warp) < moment.size() && time <= moment[index(warp)];
  }

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
    if (warp >= kFirstSignal) return warps_ + number - kFirstSignal;
    return number / kWarpsPerBlock * per_block_ + number % kWarpsPerBlock;
  }
  uint32_t at(size_t warp, size_t other) const { return known_[warp * width_ + other]; }
  uint32_t& at(size_t warp, size_t other) { return known_[warp * width_ + other]; }
  /// Warps [first, end) have met.
  void meet(size_t first, size_t end);

  size_t per_block_, warps_;
  size_t width_;  // warps and mbarriers
  uint32_t now_ = 1, start_ = 1;
  std::vector<uint32_t> known_;  // at(w, w): the time of warp w; else what it knows of others
  std::vector<uint32_t> lanes_;
  Moment together_;  // of meet()
};

}  // namespace tessera::codegen::cpu
