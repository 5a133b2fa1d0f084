#pragma once
// Tile IR to thread IR: parallel loops become the slots of one thread, accesses get their width,
// their guard and its proof, reductions become registers, shuffles and one exchange through shared
// memory. Shared offsets are left open for arrange_shared, barriers for insert_barriers.

#include <string>
#include <vector>

#include "codegen/passes/solve_layouts.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen {

struct LoweredTiles {
  Program program;
  std::vector<VarRef> uniform;            // values that reducers give to all threads of the block
  std::vector<std::string> notes;         // width and guard of each access, for `explain`
  std::vector<std::string> roles, rings;  // for `explain`
};

/// `kernel` has been through expand_tiles; `plan` belongs to it.
LoweredTiles lower_tiles(const ir::Kernel& kernel, const LayoutSolution& plan);

}  // namespace tessera::codegen
