#pragma once
// Chooses the matrix instruction of every product by cost, from the atoms of the target that fit the
// product. The instruction determines the layouts of fragments and shared tiles, so this pass runs
// before solve_layouts.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Sets Gemm::plan. Adds a note per product: the instruction, and why not the
/// others.
///
/// Errors: GEMM, if the author asks for an instruction that does not fit the product, with the first
/// failed condition.
void choose_products(ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
