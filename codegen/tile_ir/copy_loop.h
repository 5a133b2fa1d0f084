#pragma once
// A copy element by element.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// A parallel loop over the extents of `to`, or of a single element one round, with an empty body. Its variables are numbered from
/// `next_var` on.
ir::Loop loop_over(const ir::Region& to, SourceLoc loc, int& next_var);
/// The indices of the element that an iteration of the loop copies.
std::vector<ir::Expr> element_of(const ir::Region& region, const ir::Loop& loop);

/// The loop that loads and stores the elements of a copy. It keeps the plan of the copy.
ir::Loop loop_of(const ir::Copy& copy, SourceLoc loc, int& next_var);

}  // namespace tessera::codegen
