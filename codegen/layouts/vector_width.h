#pragma once
// How many elements of a parallel loop a thread handles as one vector.

#include <cstdint>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// True for a digit that numbers neighbours along the last axis in one thread.
bool is_run(const layout::Digit& digit, size_t rank);

/// True if a body holds only what can be done for all lanes of a vector at once: loads, values, stores,
/// atomics and contributions to reducers.
bool is_straight_line(const ir::Body& body);

/// The trailing If of a parallel loop's body, if its condition and all statements before it do not
/// depend on the last variable of the loop. Else null.
const ir::If* shared_branch(const ir::Loop& loop);

/// At most 16, and a divisor of the run that the layout gives a thread; 1 for a loop that goes element
/// by element.
int64_t vector_width(const ir::Loop& loop, const layout::Layout& layout);

}  // namespace tessera::codegen
