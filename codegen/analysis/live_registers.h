#pragma once
// How many registers a thread needs at the fullest point of a program, counted as it is written. The
// compiler orders statements anew and keeps addresses besides, so this says what the lowering asks
// for; what it got stands in the compiler's log.

#include <cstdint>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// 32-bit registers. A variable or a register array counts from the first statement that names it to
/// the last, and to the end of a loop that it lives across; elements below 32 bits are packed.
/// Booleans, constants of unrolled loops, parameters and thread and block indices count nothing.
int64_t live_registers(const Program& program);

}  // namespace tessera::codegen
