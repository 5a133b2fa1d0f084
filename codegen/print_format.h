#pragma once
// The text of a device print as printf wants it: the same for the GPU and the executor.

#include <string>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// "row {}: {}" of an i32 and an f32 gives "row %d: %.9g\n". Narrow floats print as f32, narrow
/// integers and booleans as int.
std::string print_format(const ir::Print& print);

}  // namespace tessera::codegen
