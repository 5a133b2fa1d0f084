#pragma once
// Which variables reach an address.

#include <unordered_set>

#include "codegen/thread_ir.h"

namespace tessera::codegen::cpu {

/// The variables that an offset or an index of an access uses, also through other variables:
/// overflow in their definition is overflow of the index.
std::unordered_set<const ir::Var*> find_index_vars(const Body& body);

}  // namespace tessera::codegen::cpu
