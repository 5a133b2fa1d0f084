#pragma once
// Declares every register array that is not declared yet right before its first use at the top
// level of the kernel.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

void place_declarations(Program& program);

}  // namespace tessera::codegen
