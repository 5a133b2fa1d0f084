#pragma once
// Gives every shared array its byte offset in the arena.
//
// If the arena would limit occupancy, arrays with disjoint lifetimes overlap in it; insert_barriers
// orders them. Where that lets more blocks run, what copies in groups have written ends too, at a wait
// for all groups.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes arrange_shared. Adds waits for all groups. Returns one note per array, for `explain`. Throws SMEM_LIMIT
/// beyond what a block of the program's target may have.
std::vector<std::string> place_arena(Program& program);

}  // namespace tessera::codegen
