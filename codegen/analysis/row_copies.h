#pragma once
// What copies of whole rows ask of the program around them.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The barriers in shared memory that keep the groups of such copies: one for every group that may be
/// under way, and one more. 0 in a program without.
int row_barriers(const Program& program);
inline constexpr int kRowBarrierBytes = 8;

/// True if some row may be copied to where threads have stored before. A bulk copy does not see their
/// stores without a fence between.
bool rows_follow_stores(const Program& program);

}  // namespace tessera::codegen
