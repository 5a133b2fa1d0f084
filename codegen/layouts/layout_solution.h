#pragma once
// The layouts of a kernel, as solve_layouts found them and later passes use them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/layouts/iteration_copies.h"
#include "dsl/layout/layout.h"

namespace tessera::codegen {

/// How the threads of a group share a parallel loop; threads are numbered from 0 in the group.
struct LoopLayout {
  layout::Layout layout;
  Copies copies = Copies::all;
  int64_t vector = 1;  // iterations along the last axis that a thread handles as one vector
};

struct LayoutSolution {
  std::map<int, layout::Layout> fragments;  // by Buffer::id, views included
  std::map<int, LoopLayout> loops;          // parallel loops, by loop_id
  std::vector<std::string> notes;           // candidates and costs, for `explain`
  std::vector<std::string> uncoalesced;     // accesses that waste sectors, for `explain`
  std::vector<std::string> relayouts;       // what was staged, for `explain`
};

}  // namespace tessera::codegen
