#pragma once
// Replaces a wait for a named group of asynchronous copies with a wait for a number of pending groups:
// the fewest groups that any path commits between the named group and the wait.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

void count_async_groups(ir::Body& body);

}  // namespace tessera::codegen
