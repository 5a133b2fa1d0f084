#pragma once
// The happens-before order between blocks from acq_rel atomics on global memory: an atomic whose old
// value is used acquires what earlier acq_rel atomics on the same element released. With it the race
// check accepts the last block that adds up the parts of all blocks, and still traps a missing
// barrier before the release or after the acquire.
//
// Within a cluster WarpClocks order the threads: a release covers what they order before it, in the
// same role and in others, and an acquire precedes what they order after it.
//
// One thread runs all blocks in a fixed order (Bytecode::in_block_order), so its findings are the same
// in every run. It checks only that one of the GPU's possible orders.

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/races/warp_clocks.h"

namespace tessera::codegen::cpu {

class BlockOrder {
 public:
  /// A thread that accesses memory now; threads are numbered through the cluster, kThreadsPerBlock per block.
  struct CurrentThread {
    int64_t block = 0, cluster = 0;
    int thread = 0;
    const WarpClocks* clocks = nullptr;  // of the cluster

    int warp() const { return thread / 32; }
  };
  /// The time of an access.
  struct Epoch {
    int64_t block = 0, cluster = 0;
    int32_t thread = 0;
    uint32_t time = 0;        // counts the releases of the cluster
    uint32_t warp_time = 0;   // WarpClocks::time
    uint32_t lanes_time = 0;  // WarpClocks::lanes_time

    int warp() const { return thread / 32; }
  };

  Epoch epoch(const CurrentThread& current) const;
  /// A barrier of all threads of the cluster.
  void barrier(int64_t cluster);
  /// An acq_rel atomic on the element at `address`: `acquires` if its old value is used, `releases` if it
  /// wrote.
  void atomic(const CurrentThread& current, const std::byte* address, bool acquires, bool releases);
  /// True if `earlier`, of another cluster, is ordered before an access of this thread now.
  bool is_before(const Epoch& earlier, const CurrentThread& current) const;

 private:
  /// The number of releases of each element that are known: all accesses before them are ordered.
  using VectorClock = std::map<const void*, size_t>;
  struct Release {
    size_t number = 0;  // of the element
    Epoch at;
    WarpClocks::VectorClock before;  // what is ordered before the thread's warp
  };
  struct Element {
    size_t releases = 0;
    std::unordered_map<int64_t, std::vector<Release>> by_cluster;
    VectorClock clock;  // joined: of the releasing threads
  };
  struct Acquire {
    Epoch at;
    VectorClock clock;  // known by this acquire and the thread's earlier ones
  };
  struct Cluster {
    uint32_t time = 1;
    VectorClock clock;                                       // known to all its threads
    std::unordered_map<int, std::vector<Acquire>> acquires;  // by thread, since the last barrier
  };
  static void join(VectorClock& into, const VectorClock& other);
  static bool is_ordered(const Epoch& earlier, const CurrentThread& current);
  bool covers(const VectorClock& clock, const Epoch& earlier, const WarpClocks& clocks) const;
  /// Calls fn(clock) for what the thread knows now.
  template <class Fn>
  static void for_each_clock(const Cluster& cluster, const CurrentThread& current, const Fn& fn);

  std::unordered_map<const void*, Element> elements_;
  std::unordered_map<int64_t, Cluster> clusters_;
};

}  // namespace tessera::codegen::cpu
