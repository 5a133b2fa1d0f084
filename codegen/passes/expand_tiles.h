#pragma once
// Expands copies and fills into parallel loops.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

ir::Kernel expand_tiles(const ir::Kernel& kernel);

}  // namespace tessera::codegen
