#pragma once
// Chooses a layout for every fragment and for every parallel loop.
//
// Matrix products and the author's own layouts are given; a fragment read outside parallel loops is
// replicated in every thread. Loops, reductions and products that share a fragment form a component.
// Each global or shared access proposes a split whose runs fit its vectors; each proposal is
// propagated through the component, and the cheapest consistent one wins (ties: the first proposed).
// If none is consistent, the first conflicting use is staged through shared memory
// (stage_fragments.h) and the search restarts. The result depends only on the program.

#include <map>
#include <string>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "codegen/layouts/iteration_copies.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// How the threads of a group share a parallel loop; threads are numbered from 0 in the group.
struct LoopLayout {
  layout::Layout layout;
  Copies copies = Copies::all;
  int64_t vector = 1;  // iterations along the last axis that a thread handles as one vector
};

struct LayoutSolution {
  std::map<int, layout::Layout> fragments;  // by Buffer::id, views included
  std::map<int, LoopLayout> loops;          // parallel loops, by loop_id
  std::vector<std::string> notes;           // candidates and costs, for `explain`
  std::vector<std::string> uncoalesced;     // accesses that waste sectors, for `explain`
  std::vector<std::string> relayouts;       // what was staged, for `explain`
};

/// Assumes expand_tiles. `kernel` must outlive the plan and receives the relayouts. Throws an Error of
/// kind program, code LAYOUT_CONFLICT, if the author forces two layouts on one fragment, or nothing
/// determines a fragment's layout.
LayoutSolution solve_layouts(ir::Kernel& kernel);

}  // namespace tessera::codegen
