#pragma once
// Prints a thread-IR program as self-contained CUDA C++ that a person enjoys reading.

#include <string>

#include "codegen/thread_ir.h"
#include "dsl/base/kernel_source.h"

namespace tessera::codegen::cuda {

/// Deterministic: the same program gives the same bytes in any process. The text needs no header
/// and no include path: the device functions that the kernel uses stand before it.
KernelSource emit(const Program& program);

/// The kernel alone, without the device functions: what `show --stage cuda` prints.
std::string emit_kernel_text(const Program& program);

/// The device functions (conversions, vector loads, warp collectives) as text, all of them, for
/// compile tests.
std::string prelude(Target target);

}  // namespace tessera::codegen::cuda
