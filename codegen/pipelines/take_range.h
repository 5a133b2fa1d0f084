#pragma once
// Which statements of a pipelined loop stand in the take of its ring.

#include <cstddef>
#include <vector>

#include "codegen/pipelines/copy_groups.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Positions in the body of the loop.
struct TakeRange {
  size_t first = 0, last = 0;
};

/// The readers of what the producers copy, and what cannot stand outside because it uses what they bind.
TakeRange take_range(const ir::Body& body, const std::vector<Producer>& producers);

}  // namespace tessera::codegen
