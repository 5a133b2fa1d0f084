// A block of a program that tunes a kernel of its own.
#include "kernels/jit/jit.h"
#include "kernels/jit/tune_run.h"

namespace ts = tessera;
namespace jit = ts::kernels::jit;

struct Spec {
  int64_t cols, rows;
};

[[maybe_unused]] void call(const jit::TuneSpace& space, ts::ir::Kernel (*build_scale)(const Spec&),
                           ts::TensorView x, ts::TensorView y, ts::kernels::Stream stream) {
  // BLOCK
}
