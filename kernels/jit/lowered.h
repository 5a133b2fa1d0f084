#pragma once
// Lowering where the runtime's options are known.

#include "codegen/thread_ir.h"
#include "dsl/ir/tile.h"

namespace tessera::kernels::jit {

/// codegen::lower(). With TESSERA_DUMP (Options::pass_dump_dir), the kernel's IR after each pass goes
/// into that folder first, as "<kernel>-<8 digits of its digest>.<NN>-<pass>.txt".
codegen::Program lowered(const ir::Kernel& kernel, Target target = {});

}  // namespace tessera::kernels::jit
