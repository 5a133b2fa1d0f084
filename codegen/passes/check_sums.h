#pragma once
// Rejects sums of several threads into one element of a fragment, t(r) += x(r, c): each thread has an element of its
// own, and the layout would decide which iterations count.

#include "codegen/layouts/layout_solution.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws an Error of kind program, code ONE_ELEMENT, where iterations of several threads change one element of a
/// fragment, each from its old value. Iterations that the layout gives to one thread may do so, and those that a
/// condition chooses one of, j == k(i). Assumes solve_layouts.
void check_sums(const ir::Kernel& kernel, const LayoutSolution& layouts);

}  // namespace tessera::codegen
