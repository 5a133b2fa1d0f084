#pragma once
// Chooses a layout for every fragment and for every parallel loop.
//
// Matrix products and the author's own layouts are given; a fragment read outside parallel loops is
// replicated in every thread. Loops, reductions and products that share a fragment form a component.
// Each global or shared access proposes a split whose runs fit its vectors; each proposal is
// propagated through the component, and the cheapest consistent one wins (ties: the first proposed).
// If none is consistent, the first conflicting use is staged through shared memory
// (stage_fragments.h) and the search restarts. The result depends only on the program.

#include "codegen/layouts/layout_solution.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Assumes expand_tiles. `kernel` must outlive the plan and receives the relayouts. Throws an Error of
/// kind program, code LAYOUT_CONFLICT, if the author forces two layouts on one fragment, or nothing
/// determines a fragment's layout.
LayoutSolution solve_layouts(ir::Kernel& kernel);

}  // namespace tessera::codegen
