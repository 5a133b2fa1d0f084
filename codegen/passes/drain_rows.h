#pragma once

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Ends a kernel that starts copies of whole rows by itself with a wait for them: a block must not
/// end before its bulk copies. Those of pipelined loops are awaited in their loop.
void drain_rows(ir::Body& body);

}  // namespace tessera::codegen
