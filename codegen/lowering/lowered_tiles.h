#pragma once
// The result of lower_tiles.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

struct LoweredTiles {
  Program program;
  std::vector<VarRef> uniform;            // values that reducers give to all threads of the block
  std::vector<std::string> notes;         // width and guard of each access, for `explain`
  std::vector<std::string> roles, rings;  // for `explain`
};

}  // namespace tessera::codegen
