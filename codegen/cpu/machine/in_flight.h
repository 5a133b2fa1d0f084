#pragma once
// Parts of the state of a block in the executor: named barriers, and accesses to shared memory
// that later ones must wait for.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codegen/cpu/races/warp_clocks.h"

namespace tessera::codegen::cpu {

/// The state of the named barrier of one id.
struct NamedBarrier {
  int64_t rounds = 0;             // that are complete
  int expected = 0, arrived = 0;  // threads
  int32_t statement = 0;          // of the first arrival
  std::vector<int> waiting;       // warps, of the block
  struct Arrival {
    int warp = 0;
    uint32_t time = 0;
    int32_t statement = 0;
  };
  std::vector<Arrival> arrivals, before;  // of this round and of the one before; checked
  WarpClocks::VectorClock clock;          // of the arrivals
  int64_t step = 0, ended_at = 0;  // of the last arrival of this round, and of the one before
};

/// An asynchronous copy of one thread.
struct Landing {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  // null = zeros
  int bytes = 0;
  int64_t group = 0;
  int32_t statement = 0;
  bool fills_ring = false;
};

/// The last store of a thread to a byte.
struct GenericStore {
  int thread = -1;  // in the cluster
  int32_t statement = 0;
  uint32_t fences = 0;
  uint32_t time = 0;  // of its warp
};

}  // namespace tessera::codegen::cpu
