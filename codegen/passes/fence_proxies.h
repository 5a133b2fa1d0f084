#pragma once
// Wgmma reads shared memory through the async proxy: what threads have written by ordinary stores and
// copies of pieces is visible to it only after a proxy fence of the writing thread and a barrier.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that the barriers stand. Puts a proxy fence before each barrier that may be the first one
/// after a write to an operand of Wgmma.
void fence_proxies(Program& program);

}  // namespace tessera::codegen
