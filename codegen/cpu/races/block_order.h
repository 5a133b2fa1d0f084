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
  struct Here {
    int64_t block = 0, cluster = 0;
    int thread = 0;
    const WarpClocks* clocks = nullptr;  // of the cluster

    int warp() const { return thread / 32; }
  };
  /// The time of an access.
  struct Moment {
    int64_t block = 0, cluster = 0;
    int32_t thread = 0;
    uint32_t time = 0;        // counts the releases of the cluster
    uint32_t warp_time = 0;   // WarpClocks::time
    uint32_t lanes_time = 0;  // WarpClocks::lanes_time

    int warp() const { return thread / 32; }
  };

  Moment moment(const Here& here) const;
  /// A barrier of all threads of the cluster.
  void barrier(int64_t cluster);
  /// An acq_rel atomic on the element at `place`: `acquires` if its old value is used, `releases` if it
  /// wrote.
  void atomic(const Here& here, const std::byte* place, bool acquires, bool releases);
  /// True if `earlier`, of another cluster, is ordered before an access of this thread now.
  bool is_before(const Moment& earlier, const Here& here) const;

 private:
  /// How many releases of each place are known: all accesses before them are ordered.
  using Known = std::map<const void*, size_t>;
  struct Release {
    size_t number = 0;  // of the place
    Moment at;
    WarpClocks::Moment before;  // what is ordered before the thread's warp
  };
  struct Place {
    size_t releases = 0;
    std::unordered_map<int64_t, std::vector<Release>> by_cluster;
    Known known;  // to the releasing threads
  };
  struct Acquire {
    Moment at;
    Known known;  // by this acquire and the thread's earlier ones
  };
  struct Cluster {
    uint32_t time = 1;
    Known known;                                             // to all its threads
    std::unordered_map<int, std::vector<Acquire>> acquires;  // by thread, since the last barrier
  };
  static void add(Known& into, const Known& more);
  static bool is_ordered(const Moment& earlier, const Here& here);
  bool covers(const Known& known, const Moment& earlier, const WarpClocks& clocks) const;
  /// Calls fn(known) for what the thread knows now.
  template <class Fn>
  static void for_each_known(const Cluster& cluster, const Here& here, const Fn& fn);

  std::unordered_map<const void*, Place> places_;
  std::unordered_map<int64_t, Cluster> clusters_;
};

}  // namespace tessera::codegen::cpu
