#pragma once
// Decides how many rounds of a loop over slots are written out at once.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets For::at_once of loops over many slots that are only moved between memories: written out whole
/// they take NVRTC longer than the rest of a kernel, and registers that other blocks could use. Loops
/// whose index names registers stay whole. After remove_dead.
void choose_unroll(Program& program);

}  // namespace tessera::codegen
