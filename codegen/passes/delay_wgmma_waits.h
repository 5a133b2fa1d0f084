#pragma once
// Keeps the tensor cores busy across loop rounds: a round awaits the product of the previous round
// instead of its own, if nothing in the loop touches the sum and no round overwrites operands of the last
// two products.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that barriers are inserted. Gives such waits one pending group and adds a final wait
/// after the loop. Adds a note per loop: delayed, or why not.
void delay_wgmma_waits(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
