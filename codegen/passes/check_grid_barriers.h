#pragma once

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Every block must reach the barriers of the grid: none under a condition or in a loop that may
/// differ between blocks (SYNC_DIVERGENT), none after a return that some blocks may take
/// (RETURN_BEFORE_BARRIER).
void check_grid_barriers(const Program& program);

}  // namespace tessera::codegen
