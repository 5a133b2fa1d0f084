#pragma once
// Pass: a product whose sums are used later is awaited later.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Moves the wait for the product of a take, with the arrival that frees its stage, down to the first statement
/// that needs the sums, so that the tensor cores have the next product meanwhile. Stays above statements that
/// write memory or wait for other threads; a wait for the next stages of the ring is no obstacle while there
/// are more stages than products in flight. Notes what moved.
///
/// Assumes barriers are inserted. Guarantees the same order of all other statements.
void sink_product_waits(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
