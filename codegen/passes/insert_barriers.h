#pragma once
// Puts a block barrier before the first statement that touches shared memory which another thread
// may still be writing or reading. Two accesses need one if some element is touched by different
// threads and one of them writes; that is decided by enumerating the threads and the loops around
// an access. An index that depends on loaded values may touch everything.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Returns one note per barrier. Throws SYNC_DIVERGENT where a barrier would be needed under a
/// condition that is not the same for the whole block.
std::vector<std::string> insert_barriers(Program& program);

}  // namespace tessera::codegen
