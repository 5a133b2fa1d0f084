#pragma once
// Decides how the rows and columns of every shared array become offsets: plain rows, rows with their
// 16-byte chunks exchanged by XOR, or padded rows, whichever costs the accesses of this program the
// fewest bank conflicts (ties: the simplest). Operands of wgmma get a swizzle of the hardware (ties: the
// widest). An array that already has a layout (Array::swizzle) keeps
// it. Fills in Access::offset of all shared accesses and puts the arranged arrays in place of those that
// the passes before made.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

void arrange_shared(Program& program);

}  // namespace tessera::codegen
