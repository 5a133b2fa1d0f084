#pragma once
// The meaning of a tile program: each statement for the whole block before the next one, tiles as plain
// arrays. No layouts, no vectors, no barriers, nothing of codegen: the judge of what the compiler
// makes of a program.

#include <vector>

#include "dsl/ir/tile.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// Runs `kernel` on CPU tensors in parameter order. Reads outside a tensor give 0, writes outside
/// are dropped. Throws std::logic_error for what it does not know and for what has no meaning (an
/// element read before it is written, an index outside a tile).
void interpret(const ir::Kernel& kernel, const std::vector<HostTensor*>& tensors);

}  // namespace tessera::test
