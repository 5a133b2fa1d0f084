#pragma once
// Puts a barrier between accesses to shared memory that need an order: an element is touched by
// different threads and one of them writes. Threads of one warp get a warp barrier, others one of
// the block. Loops are run phase by phase, so that `tile[i % 2]` of this round and of the next are
// different memory; asynchronous copies write when a wait says that they have landed. Each barrier
// that the others make unnecessary is taken out again.
//
// What cannot be evaluated may touch everything. Statements of a manual-sync region get no
// barriers; what follows the region still does.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Returns one note per barrier. `uniform`: values that are the same for the whole block by
/// construction. Throws SYNC_DIVERGENT where a barrier would be needed under a
/// condition that is not the same for the whole block (a warp barrier: warp).
std::vector<std::string> insert_barriers(Program& program, const std::vector<VarRef>& uniform);

}  // namespace tessera::codegen
