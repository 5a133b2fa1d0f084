#pragma once
// Shared arrays are constant objects that accesses name: a pass that changes one puts another in its
// place.

#include <map>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Puts `now.at(array)` in place of every shared array of the program: in the arena, in accesses, and
/// behind views of other blocks' arrays, which take its size.
void replace_shared(Program& program, const std::map<ArrayRef, ArrayRef>& now);

}  // namespace tessera::codegen
