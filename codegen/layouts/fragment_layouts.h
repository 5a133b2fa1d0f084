#pragma once
// The two directions between a parallel loop's layout and the layouts of the fragments that it
// indexes.

#include <optional>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// One index tuple with which a loop uses a fragment.
struct FragmentUse {
  ir::BufferRef buffer;
  std::vector<ir::Expr> indices;
  bool written = false;
  SourceLoc loc;
};

/// The values of constant expressions, such as the shape of a fragment.
std::vector<int64_t> constants(const std::vector<ir::Expr>& list);

/// Whether two index tuples are equal for all values of their Vars.
bool same_indices(const std::vector<ir::Expr>& a, const std::vector<ir::Expr>& b);

// An index may use `let` values (`math` knows them) and loops inside the parallel one: f(i, 4 * u + c)
// for an unrolled u, or f(i, 0). What those decide has to stay in one thread.

/// The loop layout under which every iteration runs where its element of the fragment lives;
/// nothing if the index tuple does not determine the iteration.
std::optional<layout::Layout> loop_from_fragment(const ir::Loop& loop, const FragmentUse& use,
                                                 const layout::Layout& fragment,
                                                 const IndexMath& math);

/// The fragment layout that a loop layout implies: loop digits that the index tuple does not use
/// become replicas; nothing if a digit straddles a division of the index.
std::optional<layout::Layout> fragment_from_loop(const ir::Loop& loop, const FragmentUse& use,
                                                 const layout::Layout& iteration,
                                                 const IndexMath& math);

}  // namespace tessera::codegen
