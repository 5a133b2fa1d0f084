#pragma once
// Internal to kernels/jit: the marks that warps have noted, as a Timeline.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/thread_ir.h"
#include "kernels/jit/jit.h"

namespace tessera::kernels::jit {

/// All that a timeline tells besides times.
struct MarkedProgram {
  std::string kernel;
  int64_t block = 0;
  std::vector<std::string> marks;
  std::vector<std::string> roles;  // by warp of the block
};
MarkedProgram marked(const codegen::Program& program);

/// From the executor, and from `tessera_marks` of a GPU: see codegen/cuda/prelude_marks.cpp.
Timeline timeline_of(const MarkedProgram& program,
                     const std::vector<codegen::cpu::WarpMarks>& warps);
Timeline timeline_of(const MarkedProgram& program, std::span<const uint64_t> words);

}  // namespace tessera::kernels::jit
