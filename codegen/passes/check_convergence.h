#pragma once
// Refuses divergent barriers and warp collectives: those that some threads may never reach.

#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// After insert_barriers. Throws RETURN_BEFORE_BARRIER with the line of the barrier and of the return
/// that only some threads of the block, or of the grid for its barriers, may take; SYNC_DIVERGENT
/// for a barrier of the grid under a condition or in a loop that may differ between blocks.
void check_convergence(const Program& program, const std::vector<VarRef>& uniform);

}  // namespace tessera::codegen
