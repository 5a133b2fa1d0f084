#pragma once
// The image of a shipped kernel, and what must hold of it. One compilation answers all questions: does it compile, what does
// it spill, does the assembler warn, and how long did it take.

#include <map>
#include <string>

#include "dsl/ir/tile.h"
#include "kernels/op.h"
#include "runtime/image.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/nvrtc/target.h"

namespace tessera::test {

/// This process's NVRTC; null with a reason in `why` where there is none.
const runtime::Nvrtc* nvrtc_here(std::string& why);

enum class CompileTime {
  any,
  limited
};  // limited: at most twice tools::compile_limit, on a quiet machine (C06)

class ShippedKernels {
 public:
  explicit ShippedKernels(const runtime::Nvrtc& nvrtc) : nvrtc_(nvrtc) {}

  /// Lowers and compiles a kernel of an example; one text once, for the first target that has it. Checks what it spills, what
  /// the assembler says, and how long it took.
  const runtime::Image& image(const kernels::OpInfo& op, const kernels::BenchCase& example,
                              const ir::Kernel& kernel, runtime::Target target, CompileTime time);

 private:
  const runtime::Nvrtc& nvrtc_;
  std::map<std::string, runtime::Image> images_;  // by text
  double slowness_ = 0;                           // 0: not measured yet
};

}  // namespace tessera::test
