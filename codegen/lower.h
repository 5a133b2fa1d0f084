#pragma once
// Tile IR to thread IR: the pass list.

#include "codegen/thread_ir.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Lowers a kernel. Throws Error of kind program (with the author's line) for what cannot be
/// lowered. Deterministic: the same kernel gives the same program in any process.
Program lower(const ir::Kernel& kernel);

/// Why each layout, width, guard and barrier was chosen: `tessera show OP --stage explain`.
std::string explain(const ir::Kernel& kernel);

/// Every fragment and its layout, drawn: `tessera show OP --stage layout`.
std::string draw_layouts(const ir::Kernel& kernel);

}  // namespace tessera::codegen
