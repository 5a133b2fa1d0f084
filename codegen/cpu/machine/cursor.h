#pragma once
// The execution state of a group of threads that run in lockstep.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/thread_group.h"

namespace tessera::codegen::cpu {

/// The active threads of a statement: lanes[i] is 1 for active threads, all of which are in [begin,
/// end).
struct Mask {
  uint8_t* lanes = nullptr;
  int begin = 0, end = 0, count = 0;

  bool dense() const { return count == end - begin; }
};

/// Calls f(lane) for each active lane, in order.
template <class F>
void for_each_lane(const Mask& mask, const F& f) {
  if (mask.dense()) {
    for (int lane = mask.begin; lane < mask.end; ++lane) f(lane);
  } else {
    for (int lane = mask.begin; lane < mask.end; ++lane) {
      if (mask.lanes[lane] != 0) f(lane);
    }
  }
}

/// Calls f(warp) for each warp with an active thread.
template <class F>
void for_each_active_warp(const Mask& mask, const F& f) {
  int last = -1;
  for_each_lane(mask, [&](int lane) {
    if (lane / kThreadsPerWarp == last) return;
    last = lane / kThreadsPerWarp;
    f(last);
  });
}

/// The program position of a group: all threads of the block, or those of one role. The threads run in
/// lockstep, so a wait of some of them stops the group.
struct Cursor {
  std::string name;  // of the role; empty = the block
  ThreadGroup threads;
  std::vector<Mask> masks;  // outer first: [0] holds the threads that have not left
  int depth = 0;
  size_t next = 0, end = 0;  // instructions
  bool waits = false;        // the next instruction must wait
  int awaits = -1;           // the instruction that waits for a signal of another block; -1 = none
  int64_t awaited_round = -1;  // of the named barrier where it waits; -1 = not there yet

  const Mask& mask() const { return masks[static_cast<size_t>(depth)]; }
  Mask& mask() { return masks[static_cast<size_t>(depth)]; }
  const Mask& outer() const { return masks[static_cast<size_t>(depth) - 1]; }
  bool has_ended() const { return next >= end; }
};

class Machine;
/// Threads that wait for a signal of another block.
struct SignalWait {
  const Machine* machine = nullptr;
  const Cursor* cursor = nullptr;
  int32_t statement = 0;
};

}  // namespace tessera::codegen::cpu
