#pragma once
// Rules that a layout plan must satisfy for its kernel.

#include <string_view>

#include "codegen/layouts/layout_solution.h"

namespace tessera::codegen {

/// Throws an internal error that names the pass `after`, the rule and the line, unless
///
/// - every parallel loop has a layout of its extents, and every fragment in use one of its shape;
/// - layouts need at most the threads of the block, and give no register to two elements;
/// - the vector width of a loop divides its last extent;
/// - no thread runs a second copy of an iteration that must run once (Copies::none).
void verify_layouts(const ir::Kernel& kernel, const LayoutSolution& plan, std::string_view after);

}  // namespace tessera::codegen
