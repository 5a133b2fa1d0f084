#pragma once
// Lowers a kernel with the runtime's options.

#include "codegen/thread_ir.h"
#include "dsl/ir/tile.h"

namespace tessera::kernels::jit {

/// codegen::lower(). With TESSERA_DUMP (Options::pass_dump_dir), first writes the kernel's IR after
/// each pass into that folder, as "<kernel>-<8 digits of its digest>.<NN>-<pass>.txt".
codegen::Program lower_kernel(const ir::Kernel& kernel, Target target = {});

}  // namespace tessera::kernels::jit
