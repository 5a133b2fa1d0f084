#pragma once
// Copies and fills become the parallel loops they are; everything else is kept.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

ir::Kernel expand_tiles(const ir::Kernel& kernel);

}  // namespace tessera::codegen
