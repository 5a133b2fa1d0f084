#pragma once
// Dead code elimination, after the removal of checks that only the executor makes.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Removes assumptions and checks of indices.
void drop_checks(Program& program);

/// Removes unused values, arrays that no statement accesses, and empty loops and branches.
void remove_dead(Program& program);

}  // namespace tessera::codegen
