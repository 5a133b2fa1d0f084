#pragma once
// The state of a named barrier in the executor.

#include <cstdint>
#include <vector>

#include "codegen/cpu/warp_clocks.h"

namespace tessera::codegen::cpu {

/// Of the named barrier of one id.
struct Meeting {
  int64_t number = 0;  // number of completed meetings
  int expected = 0, come = 0;
  int32_t statement = 0;     // of the first arrival
  std::vector<int> waiting;  // warps, of the block
  struct Arrival {
    int warp = 0;
    uint32_t time = 0;
    int32_t statement = 0;
  };
  std::vector<Arrival> arrivals, before;  // of this meeting and of the one before; checked
  WarpClocks::Moment moment;
};

}  // namespace tessera::codegen::cpu
