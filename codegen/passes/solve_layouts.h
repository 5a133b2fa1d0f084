#pragma once
// Chooses a layout for every fragment and for every parallel loop. Loops and reductions that share
// a fragment form a component; each global or shared access proposes a split whose runs fit its
// vectors, each proposal is carried through the whole component, and the cheapest consistent one
// wins (ties: the first proposed).

#include <map>
#include <string>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

struct LayoutPlan {
  std::map<int, layout::Layout> fragments;          // by Buffer::id, views included
  std::map<const ir::Loop*, layout::Layout> loops;  // parallel loops of the kernel given
  std::vector<std::string> notes;                   // candidates and costs, for `explain`
};

/// `kernel` has been through expand_tiles and must outlive the plan. Throws an Error of kind
/// program where no consistent layout exists.
LayoutPlan solve_layouts(const ir::Kernel& kernel);

/// The widest power of two <= `limit` such that every run of that many values of `lane` (from a
/// multiple of it on) addresses consecutive elements of `buffer` that form one aligned vector of at
/// most 16 bytes.
int64_t feasible_vector(const IndexMath& math, const ir::Buffer& buffer,
                        const std::vector<ir::Expr>& indices, const ir::Var& lane, int64_t limit);

}  // namespace tessera::codegen
