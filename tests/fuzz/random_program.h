#pragma once
// Random small tile programs that have one meaning: nothing is read before it is written, no two
// iterations of a loop touch one element, and every float stays an integer small enough for sums in
// any order.

#include <cstdint>
#include <memory>
#include <vector>

#include "dsl/ir/tile.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

struct RandomProgram {
  ir::Kernel kernel;
  std::vector<HostTensor> tensors;  // in parameter order, inputs filled
};

/// The same seed gives the same program everywhere. Throws Error of kind program where the
/// compiler's front refuses it.
RandomProgram random_program(uint64_t seed);

}  // namespace tessera::test
