#pragma once
// Refuses races between the iterations of a parallel loop: one iteration reads an element of shared
// memory that another one writes. The block size decides which iterations run at the same time, so the
// result would depend on it.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws an Error of kind program, code ITERATION_ORDER. `kernel` has been through expand_tiles. The
/// check enumerates the iterations and refuses the collisions that it finds. It accepts loops whose
/// indices or conditions depend on data, and loops with barriers of the author.
void check_iterations(const ir::Kernel& kernel);

}  // namespace tessera::codegen
