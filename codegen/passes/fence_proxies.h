#pragma once
// Products of four warps and tensor stores read shared memory through the async proxy. They see the threads' ordinary stores and copies
// of pieces only after a proxy fence of the writing thread and a barrier. So it is with tensor stores over what threads
// have written to a tensor.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that barriers are inserted. Inserts a proxy fence before each barrier that may be the
/// first after a write to an operand of such a product, to a tile that a tensor store reads or to a tensor that one writes.
void fence_proxies(Program& program);

}  // namespace tessera::codegen
