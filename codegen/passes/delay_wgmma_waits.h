#pragma once
// Keeps the tensor cores busy from one round of a loop to the next: a round awaits the product of the
// round before instead of its own, where nothing in the loop touches the sum and no round overwrites what
// the last two products read.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that the barriers stand. Gives such waits one pending group and adds a wait for the rest
/// after the loop. Adds a note per loop: delayed, or why not.
void delay_wgmma_waits(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
