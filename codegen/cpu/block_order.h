#pragma once
// The happens-before order between blocks from acq_rel atomics on global memory: an atomic whose old
// value is used acquires what earlier acq_rel atomics on the same element released. With it the race
// check accepts the last block that adds up the parts of all blocks, and still traps a missing block
// barrier before the release or after the acquire.
//
// One thread runs all blocks in a fixed order (Bytecode::in_block_order), so its findings are the same
// in every run. It checks only that one of the GPU's possible orders.

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace tessera::codegen::cpu {

class BlockOrder {
 public:
  /// Time and thread of an access. `time` counts the barriers and releases of the block.
  struct Moment {
    int64_t block = 0;
    uint32_t time = 0;
    int32_t thread = 0;  // of the block
  };

  Moment moment(int64_t block, int thread) const;
  /// A barrier of the block.
  void barrier(int64_t block);
  /// An acq_rel atomic on the element at `place`: `acquires` if its old value is used, `releases` if it
  /// wrote.
  void atomic(int64_t block, int thread, const std::byte* place, bool acquires, bool releases);
  /// A barrier of the cluster with `count` blocks from `first` on.
  void cluster_barrier(int64_t first, int64_t count);
  /// True if `earlier` is ordered before an access of this thread now.
  bool is_before(const Moment& earlier, int64_t block, int thread) const;

 private:
  /// How many releases of each place are known: all accesses before them are ordered.
  using Known = std::map<const void*, size_t>;
  /// Covers the block's accesses before its last barrier, and the thread's accesses until the
  /// release.
  struct Release {
    size_t number = 0;  // of the place
    uint32_t barrier_time = 0, time = 0;
    int32_t thread = 0;
  };
  struct Place {
    size_t releases = 0;
    std::unordered_map<int64_t, std::vector<Release>> by_block;
    Known known;  // to the releasing threads
  };
  struct Block {
    uint32_t time = 1, barrier_time = 1;
    Known known;                              // to all threads of the block
    std::unordered_map<int, Known> acquired;  // by one thread since the last barrier
  };
  static void add(Known& into, const Known& more);
  void acquire(Known& into, const void* place);
  void release(int64_t block, int thread, const void* place);
  bool covers(const Known& known, const Moment& earlier) const;

  std::unordered_map<const void*, Place> places_;
  std::unordered_map<int64_t, Block> blocks_;
};

}  // namespace tessera::codegen::cpu
