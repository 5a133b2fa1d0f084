#pragma once
// Chooses the matrix instruction of every product, from the atoms that the target has and that fit the
// product, by their cost. The instruction decides the layouts of fragments and shared tiles, so this
// comes before they are solved.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Sets Gemm::instruction and Gemm::warps. Adds a note per product: which instruction, and why not the
/// others. Without a target the instruction is one that all have.
///
/// Errors: GEMM, for a product whose author asks for an instruction that does not fit, with the first
/// condition that does not hold.
void choose_products(ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
