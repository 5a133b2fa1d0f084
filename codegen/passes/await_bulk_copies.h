#pragma once

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Ends a kernel that starts bulk copies outside of pipelined loops with a wait for all copies: a block must
/// not end before its bulk copies. Pipelined loops await theirs.
void await_bulk_copies(ir::Body& body);

}  // namespace tessera::codegen
