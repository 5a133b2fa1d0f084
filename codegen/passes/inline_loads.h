#pragma once
// Chooses the loads that are printed in place of their variable, so that the text reads like the
// author's.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets Load::at_use of loads whose variable is used once, later in the same body, if nothing between
/// writes or orders that memory. Runs after remove_dead.
void inline_loads(Program& program);

}  // namespace tessera::codegen
