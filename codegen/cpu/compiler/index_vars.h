#pragma once
// Finds the variables that addresses depend on.

#include <unordered_set>

#include "codegen/thread_ir.h"

namespace tessera::codegen::cpu {

/// The variables that an offset or index of an access uses, directly or through other variables.
/// Overflow in their definition is overflow of the index.
std::unordered_set<const ir::Var*> find_index_vars(const Body& body);

}  // namespace tessera::codegen::cpu
