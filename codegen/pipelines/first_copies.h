#pragma once
// Where the first copies of a pipelined loop can be issued: before statements that only compute in
// registers, so that memory is busy from the start of the kernel.

#include <cstddef>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// The place in `before` in front of which `copies`, which follow all of it, can stand. Statements that
/// define what the copies use, that write memory, wait, or may leave the kernel are not passed.
size_t earliest_place(const ir::Body& before, const ir::Stmt& copies);

/// The place in `body`, from `place` on, behind all statements that read global memory.
size_t place_behind_loads(const ir::Body& body, size_t place);

}  // namespace tessera::codegen
