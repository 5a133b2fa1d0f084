#pragma once
// Sums that begin at zero: the first instruction of a product ignores what its registers hold.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Assumes that products have their waits. A loop that only stores zeros to all of an array goes if another product of four warps
/// starts, and what touches the array next is a product that adds to all of it: the first instruction for each part of the sums
/// then clears them. Else the compiler of the text would write the zeros while the other product is in flight, and the assembler
/// would wait for that one first.
void clear_in_products(Program& program);

}  // namespace tessera::codegen
