#pragma once
// Chooses the forms of loads and stores that cost the GPU the fewest registers and the least work. The bits
// are the same in every form.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets Load::by_branch of guarded vector loads whose registers only move to memory, or whose memory the kernel
/// writes. Sets Load::in_pair of bf16 and e4m3 registers that are loaded at use out of vectors. Sets
/// Store::kept_for_loops of f32 registers that matrix products read in a loop that does not fill them.
void choose_access_forms(Program& program);

}  // namespace tessera::codegen
