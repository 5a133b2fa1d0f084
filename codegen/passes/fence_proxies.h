#pragma once
// Wgmma reads shared memory through the async proxy. It sees the threads' ordinary stores and copies
// of pieces only after a proxy fence of the writing thread and a barrier.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that barriers are inserted. Inserts a proxy fence before each barrier that may be the
/// first after a write to an operand of Wgmma.
void fence_proxies(Program& program);

}  // namespace tessera::codegen
