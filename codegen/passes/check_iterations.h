#pragma once
// Refuses parallel loops whose result depends on the order of their iterations: one iteration reads an
// element of shared memory that another one writes. Such a loop may run its iterations in one round of
// the block or in several, so its result would change with the number of threads.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws an Error of kind program, code ITERATION_ORDER. `kernel` has been through expand_tiles. The
/// check enumerates the iterations, so it refuses only what it has seen to collide: a loop whose
/// indices or conditions depend on data passes, and so does one with barriers of the author.
void check_iterations(const ir::Kernel& kernel);

}  // namespace tessera::codegen
