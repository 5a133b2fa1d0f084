#pragma once
// Gives every shared array its place in the arena and its arrangement: plain rows, rows with their
// 16-byte chunks exchanged by XOR, or padded rows, whichever costs the accesses of this program the
// fewest bank conflicts (ties: the simplest). Fills in Access::offset of all shared accesses, and
// puts the placed arrays in place of those that the passes before made.
//
// Where the arena would limit how many blocks a multiprocessor holds, arrays whose uses do not meet
// overlap in it; insert_barriers orders them.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Returns one note per array, for `explain`. Throws SMEM_LIMIT beyond 227 KiB.
std::vector<std::string> place_shared(Program& program);

}  // namespace tessera::codegen
