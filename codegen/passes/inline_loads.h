#pragma once
// Decides which loads are written where their value is used, so that the text reads like the author's.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets Load::at_use of loads whose variable is used once, later in the same body, where nothing between
/// writes that memory or orders it. After remove_dead.
void inline_loads(Program& program);

}  // namespace tessera::codegen
