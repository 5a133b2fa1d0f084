#pragma once
// The happens-before order of the warps of one cluster: vector clocks with a component per warp and one
// per mbarrier, for its copies.

#include <cstdint>
#include <vector>

namespace tessera::codegen::cpu {

inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kWarpsPerBlock = kThreadsPerBlock / 32;
/// Mbarriers are numbered after the warps of a cluster; those beyond share the last number.
inline constexpr int kFirstSignal = 16 * kWarpsPerBlock, kMostSignals = 511;

/// Warps are numbered through the cluster, kWarpsPerBlock per block. Every access carries its warp's
/// time. No warp reuses a time, so nothing is cleared between clusters.
///
///   clocks.release(0, clock);          // warp 0 arrives somewhere
///   clocks.acquire(1, clock);          // warp 1 has waited for it
///   clocks.is_before(0, time, 1);      // true of the times of warp 0 before it arrived
class WarpClocks {
 public:
  /// The accesses that precede some arrivals: the last included time of each warp or mbarrier.
  using VectorClock = std::vector<uint32_t>;

  /// `signals`: number of mbarriers of the cluster.
  WarpClocks(int blocks, int threads, int signals = 0);

  /// A barrier of the lanes of one warp.
  void warp_barrier(int warp) { ++lanes_[index(warp)]; }
  void block_barrier(int block);
  /// Also called where a cluster begins.
  void cluster_barrier();
  /// Adds to `into` the warp's accesses and what precedes them.
  void release(int warp, VectorClock& into);
  /// Completes the copies of mbarrier kFirstSignal + n and adds them to `into`. Returns their time.
  uint32_t land(int signal, VectorClock& into);
  /// Orders `from` before the warp's later accesses.
  void acquire(int warp, const VectorClock& from);

  /// Sets `into` to all that is ordered before the warp's next access.
  void copy_clock(int warp, VectorClock& into) const;
  /// True if what `warp` did at `time` is part of `clock`.
  bool is_covered(int warp, uint32_t time, const VectorClock& clock) const {
    return index(warp) < clock.size() && time <= clock[index(warp)];
  }

  /// The time of the warp's next access.
  uint32_t time(int warp) const { return at(index(warp), index(warp)); }
  /// Distinguishes the warp barriers of a warp.
  uint32_t lanes_time(int warp) const { return lanes_[index(warp)]; }
  /// The earliest time since the last barrier of the cluster.
  uint32_t start() const { return start_; }
  /// True if accesses of `other` at `time` come before the current ones of `warp`. Always true of
  /// time 0.
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
  /// Joins the clocks of warps [first, end), which meet at a barrier.
  void join_all(size_t first, size_t end);

  size_t per_block_, warps_;
  size_t width_;  // warps and mbarriers
  uint32_t now_ = 1, start_ = 1;
  std::vector<uint32_t> known_;  // at(w, w): the time of warp w; else what it knows of other warps
  std::vector<uint32_t> lanes_;
  VectorClock joined_;  // of join_all()
};

}  // namespace tessera::codegen::cpu
