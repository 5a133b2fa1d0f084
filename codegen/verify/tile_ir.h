#pragma once
// Rules that every tile-IR kernel satisfies between passes.

#include <string_view>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Properties that earlier passes have established.
struct TileExpectations {
  bool are_roles_split = false;     // split_roles has run: no pipelined loop has a producer
  bool are_loops_serial = false;    // pipeline_loops has run: no loop is pipelined
  bool are_tiles_expanded = false;  // expand_tiles has run: no copy, no fill
  bool are_layouts_solved = false;  // solve_layouts has run: there is a plan to verify (layouts.h)
};

/// Throws an internal error that names the pass `after`, the rule and the line, unless
///
/// - every variable is defined before it is used and in scope there, is numbered below num_vars, and
///   has a number of its own; so has every loop;
/// - every buffer is a tensor, a view that has begun, or on-chip with constant extents, and no other
///   buffer has its number;
/// - an access has one integer index per dimension, a region one offset per dimension and the
///   dimensions of its shape each once;
/// - shapes agree: of both sides of a copy, of a reduction and its result, of a matrix product;
/// - dtypes agree: of what is bound, stored and tested, and of both sides of an asynchronous copy;
/// - nothing writes an input tensor;
/// - tile operations and parallel loops stand under no condition on the thread and, once solve_layouts
///   has refused the author's, in no parallel loop;
/// - a reducer is opened, updated and finalized in this order, by one operation, in one body;
/// - asynchronous copies are committed before a wait and before the end, and a wait for a group comes
///   after its commit;
/// - marks nest within a body;
/// - steps of loops are positive, and parallel loops have constant extents.
///
///   verify(kernel, {.are_loops_serial = true}, "pipeline_loops")
void verify(const ir::Kernel& kernel, const TileExpectations& expected, std::string_view after);

}  // namespace tessera::codegen
