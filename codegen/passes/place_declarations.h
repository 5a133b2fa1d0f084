#pragma once
// Declares every undeclared register array before its first use, at the top level of the kernel.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

void place_declarations(Program& program);

}  // namespace tessera::codegen
