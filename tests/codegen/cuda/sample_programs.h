#pragma once
// Small thread-IR programs, one idea each, for the approved texts and the compile tests.

#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::test {

std::vector<codegen::Program> sample_programs();

/// Casts rows of bf16 to e4m3 with one scale per 128 columns, 16 bytes per thread and access.
codegen::Program cast_rows();

}  // namespace tessera::test
