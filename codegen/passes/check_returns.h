#pragma once
// Refuses programs in which some threads may have left the kernel before a barrier or a warp
// collective that waits for them.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// After insert_barriers. Throws RETURN_BEFORE_BARRIER with the line of the barrier and of the
/// return.
void check_returns(const Program& program);

}  // namespace tessera::codegen
