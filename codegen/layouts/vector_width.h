#pragma once
// The number of iterations of a parallel loop that a thread handles as one vector.

#include <cstdint>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// True for a digit that numbers neighbours along the last axis within one thread.
bool is_run(const layout::Digit& digit, size_t rank);

/// True if all statements of a body can be done for all lanes of a vector at once: loads, values,
/// stores, atomics and contributions to reducers.
bool is_straight_line(const ir::Body& body);

/// True for an addition to global memory of a dtype that has instructions for several neighbours, and true
/// if these can make it.
bool is_sum(const ir::Atomic& atomic);
bool has_wide_form(const ir::Atomic& atomic);

/// Returns the trailing If of a parallel loop's body when its condition and all statements before
/// it are independent of the last loop variable, else null.
const ir::If* shared_branch(const ir::Loop& loop);

/// At most 16, and a divisor of the run that the layout gives a thread; 1 for a loop that goes element
/// by element.
int64_t vector_width(const ir::Loop& loop, const layout::Layout& layout);

}  // namespace tessera::codegen
