// A block of a program that calls kernels.
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "kernels/ops.h"
#include "kernels/warm_up.h"
#include "runtime/runtime.h"

namespace ts = tessera;

[[maybe_unused]] void call(ts::ir::Kernel (*build_scale)(), ts::TensorView x, ts::TensorView y,
                           ts::kernels::Stream stream) {
  static_cast<void>(build_scale), static_cast<void>(x), static_cast<void>(y),
      static_cast<void>(stream);
  // BLOCK
}
