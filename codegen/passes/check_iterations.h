#pragma once
// Rejects races between the iterations of a parallel loop: one iteration reads an element of shared
// memory that another writes. The block size determines which iterations run concurrently, so the
// result would depend on it.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws an Error of kind program, code ITERATION_ORDER. Assumes expand_tiles. Enumerates the
/// iterations and rejects the collisions that it finds. Accepts loops whose indices or conditions
/// depend on data, and loops with barriers of the author.
void check_iterations(const ir::Kernel& kernel);

}  // namespace tessera::codegen
