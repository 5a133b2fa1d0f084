// A block that allocates the scratch memory of a call.
#include <cstdint>

#include "kernels/ops.h"

namespace ts = tessera;

[[maybe_unused]] void call(ts::TensorView group_idx, ts::TensorView out, void* (*allocate)(int64_t),
                           ts::kernels::Stream stream) {
  // BLOCK
}
