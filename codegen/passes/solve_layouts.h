#pragma once
// Chooses a layout for every fragment and for every parallel loop.
//
// Matrix products and the author's own layouts are given; a fragment read outside of parallel loops
// is held by every thread. Loops, reductions and products that share a fragment form a component;
// each global or shared access proposes a split whose runs fit its vectors, each proposal is carried
// through the whole component, and the cheapest consistent one wins (ties: the first proposed). Where
// none is consistent, the first use in the way is staged through shared memory (stage_fragments.h)
// and the search starts again. All of it depends on the program alone.

#include <map>
#include <string>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "codegen/layouts/iteration_copies.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// How the threads of a group share a parallel loop; it numbers them from 0.
struct LoopLayout {
  layout::Layout layout;
  Copies copies = Copies::all;
  int64_t vector = 1;  // iterations along the last axis that a thread handles as one
};

struct LayoutSolution {
  std::map<int, layout::Layout> fragments;  // by Buffer::id, views included
  std::map<int, LoopLayout> loops;          // parallel loops, by loop_id
  std::vector<std::string> notes;           // candidates and costs, for `explain`
  std::vector<std::string> uncoalesced;     // accesses that waste sectors, for `explain`
  std::vector<std::string> relayouts;       // what was staged, for `explain`
};

/// `kernel` has been through expand_tiles and must outlive the plan; relayouts are added to it. Throws
/// an Error of kind program, code LAYOUT_CONFLICT, where the author forced two layouts on one
/// fragment or nothing determines the layout of one.
LayoutSolution solve_layouts(ir::Kernel& kernel);

}  // namespace tessera::codegen
