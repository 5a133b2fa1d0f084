#pragma once
// Turns waits for a named group of asynchronous copies into waits for a number of pending groups:
// the fewest groups that can have been committed since, whatever path led here.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

void count_async_groups(ir::Body& body);

}  // namespace tessera::codegen
