#pragma once
// The state of one mbarrier in the executor. Copies complete when a thread waits for the end of their phase, as
// late as the program allows, so that reads that come too early trap.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "codegen/cpu/races/warp_clocks.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen::cpu {

struct Mbarrier {
  /// A bulk or tensor copy in flight.
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    int64_t bytes = 0;
    int32_t statement = 0;
    int thread = 0;                   // in the cluster
    std::vector<std::byte> box = {};  // of a tensor copy: what it writes; `from` is null
    const std::byte* map = nullptr;   // of a tensor copy: its place, if it is in memory
    std::vector<int64_t> first = {};  // of a multicast: coordinates of the block's part
  };
  /// Statement, and thread in the cluster, of the last event; statement 0 = none.
  struct Event {
    int32_t statement = 0;
    int thread = 0;
  };

  Event init;
  Array::RingPart ring_part = Array::RingPart::tile;  // tile: of no ring
  int arrivals = 0;                                   // of a phase
  int pending = 0;                                    // of them, in the current phase
  int64_t phase = 0;                                  // the current one
  int64_t awaited = -1;      // the last phase whose end a thread has awaited
  int64_t expected = 0;      // bytes of the current phase
  std::vector<Copy> copies;  // of the current phase
  Event arrival, expectation;
  int signal = 0;                   // its index in the clocks
  WarpClocks::VectorClock current;  // what precedes the arrivals of this phase; checked
  WarpClocks::VectorClock ended;    // of the previous phase
  int64_t step = 0, ended_at = 0;   // of the last arrival at this phase, and at the previous one

  int64_t copied() const {
    int64_t sum = 0;
    for (const Copy& copy : copies) sum += copy.bytes;
    return sum;
  }
  /// True if the current phase ends when its copies complete.
  bool may_end() const { return pending == 0 && expected == copied(); }
  void begin_next_phase() {
    ++phase;
    pending = arrivals;
    expected = 0;
    copies.clear();
    ended = std::move(current);
    current.clear();
    ended_at = step;
  }
};

}  // namespace tessera::codegen::cpu
