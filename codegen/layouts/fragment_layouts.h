#pragma once
// Derives a parallel loop's layout from the fragments that it indexes, and fragment layouts from
// the loop's.

#include <optional>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// One index tuple by which a loop accesses a fragment.
struct FragmentUse {
  ir::BufferRef buffer;
  std::vector<ir::Expr> indices;
  bool written = false;
  SourceLoc loc;
};

/// The values of constant expressions, such as the shape of a fragment.
std::vector<int64_t> constants(const std::vector<ir::Expr>& list);

/// True if two index tuples are equal for all values of their Vars.
bool same_indices(const std::vector<ir::Expr>& a, const std::vector<ir::Expr>& b);

// An index may use `let` values (known to `math`) and loops inside the parallel one: f(i, 4 * u + c)
// for an unrolled u, or f(i, 0). Dimensions that these index must stay in one thread.

/// The loop layout that runs every iteration in the thread that holds its fragment element; nothing
/// if the index tuple does not determine the iteration.
std::optional<layout::Layout> loop_from_fragment(const ir::Loop& loop, const FragmentUse& use,
                                                 const layout::Layout& fragment,
                                                 const IndexMath& math);

/// The fragment layout that follows from a loop layout. Loop digits that the index tuple does not
/// use become replicas. Nothing if a digit straddles a division of the index.
std::optional<layout::Layout> fragment_from_loop(const ir::Loop& loop, const FragmentUse& use,
                                                 const layout::Layout& iteration,
                                                 const IndexMath& math);

}  // namespace tessera::codegen
