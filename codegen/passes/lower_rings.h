#pragma once
// Tiles of rings get a stage as their first dimension, and their copies an engine. The mbarriers come with
// lower_tiles.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Where a fill or a take names a tile of its ring, it names the stage of that turn afterwards. A copy from
/// global memory in a fill goes on in the background where the hardware can: see engine_of() in the source.
void lower_rings(ir::Kernel& kernel);

}  // namespace tessera::codegen
