#pragma once
// Tile IR to thread IR: parallel loops become the slots of one thread, accesses get their width,
// their guard and its proof, reductions become registers, shuffles and one exchange through shared
// memory. Shared offsets are left open for arrange_shared, barriers for insert_barriers.

#include "codegen/layouts/layout_solution.h"
#include "codegen/lowering/lowered_tiles.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// `kernel` has been through expand_tiles; `plan` belongs to it.
LoweredTiles lower_tiles(const ir::Kernel& kernel, const LayoutSolution& plan);

}  // namespace tessera::codegen
