#pragma once
// What copies of whole rows ask of the program around them.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The barriers in shared memory that keep the groups of such copies: one for every group that may be
/// under way, and one more. 0 in a program without.
int row_barriers(const Program& program);
inline constexpr int kRowBarrierBytes = 8;

}  // namespace tessera::codegen
