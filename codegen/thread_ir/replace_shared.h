#pragma once
// Replaces shared arrays: they are constant objects that accesses name, so a pass that changes one
// makes a new object.

#include <map>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Replaces every shared array of the program by `now.at(array)`: in the arena, in accesses, and in
/// views of other blocks' arrays, which take its size.
void replace_shared(Program& program, const std::map<ArrayRef, ArrayRef>& now);

}  // namespace tessera::codegen
