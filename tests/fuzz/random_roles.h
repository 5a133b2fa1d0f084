#pragma once
// Random kernels with roles: some load tiles into rings, others take them and multiply, add, reduce, scan or count.
//
// The meaning of a kernel is written beside it, on plain arrays and from the definitions: every statement that is recorded
// adds a function of the block and the turn. So a scan that covers a part of a line differs, which an interpreter of
// the recorded statements would not see. All values are integers that are small enough for sums in any order.

#include <cstdint>
#include <vector>

#include "dsl/ir/tile.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

struct RoleProgram {
  ir::Kernel kernel;
  std::vector<HostTensor> tensors;            // in parameter order, inputs filled
  std::vector<std::vector<double>> expected;  // by tensor; empty: an input
};

/// The same seed gives the same program everywhere. Throws Error of kind program where the compiler's front
/// refuses it.
RoleProgram random_role_program(uint64_t seed);

}  // namespace tessera::test
