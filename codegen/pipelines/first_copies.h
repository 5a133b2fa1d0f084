#pragma once
// Hoists the prologue of a pipelined loop above statements that only compute in registers, so that
// memory is busy from the start of the kernel.

#include <cstddef>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// The earliest position in `before` to which `copies`, which follow all of it, can be hoisted. Copies
/// are not hoisted above definitions that they use, stores, waits and returns.
size_t earliest_place(const ir::Body& before, const ir::Stmt& copies);

/// The first position in `body`, from `place` on, after all loads from global memory.
size_t place_behind_loads(const ir::Body& body, size_t place);

}  // namespace tessera::codegen
