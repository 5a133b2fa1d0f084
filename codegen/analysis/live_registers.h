#pragma once
// The peak number of live registers per thread in program order. The compiler reorders statements
// and also keeps addresses, so this is the demand of the lowering; the compiler's log has the
// allocation.

#include <cstdint>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// 32-bit registers. A variable or register array is live from the first statement that names it to
/// the last, and to the end of a loop that it lives across; elements below 32 bits are packed.
/// Booleans, constants of unrolled loops, parameters and thread and block indices cost nothing.
int64_t live_registers(const Program& program);

}  // namespace tessera::codegen
