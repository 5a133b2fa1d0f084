#pragma once
// Keeps the tensor cores busy across loop rounds: a round awaits the products of the previous round
// instead of its own, if nothing in the loop touches their sums and no round overwrites operands of the last
// two rounds.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that barriers are inserted. Such a wait leaves as many groups pending as a round has products; final
/// waits stand after the loop. Adds a note per product: delayed, or why not.
void delay_product_waits(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
