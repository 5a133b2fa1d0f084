#pragma once
// Gives each statement that writes a tensor map the map of its tensor's copies, and removes those without copies.
// After lower_bulk_copies. COPY_ENGINE if a tensor at an address has copies by several maps.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

void finish_maps(Program& program);

}  // namespace tessera::codegen
