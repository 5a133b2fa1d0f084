#pragma once
// Refuses divergent barriers and warp collectives: those that some threads may never reach.

#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Runs after insert_barriers. Throws RETURN_BEFORE_BARRIER, with the lines of the barrier and of the
/// return, if only some threads of the block (of the grid, for its barriers) may return. Throws
/// SYNC_DIVERGENT for a grid barrier under a condition or in a loop that may differ between blocks.
void check_convergence(const Program& program, const std::vector<VarRef>& uniform);

}  // namespace tessera::codegen
