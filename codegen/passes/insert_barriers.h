#pragma once
// Inserts a barrier between accesses to shared memory that need an order: different threads touch
// an element and one of them writes. Threads of one warp get a warp barrier, others a block
// barrier. Loops are analysed phase by phase, so that `tile[i % 2]` of two consecutive rounds is
// different memory. Asynchronous copies write at the wait that completes them. Finally removes
// barriers that the others make redundant.
//
// An access that cannot be evaluated may touch everything. Statements of a manual-sync region get
// no barriers; statements after the region do.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Returns one note per barrier. `uniform`: values that are uniform for the block by construction.
/// Throws SYNC_DIVERGENT if a barrier would be needed under a condition that is not uniform for the
/// block (for a warp barrier: the warp).
std::vector<std::string> insert_barriers(Program& program, const std::vector<VarRef>& uniform);

}  // namespace tessera::codegen
