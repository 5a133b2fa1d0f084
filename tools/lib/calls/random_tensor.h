#pragma once
// Seeded input data for checks and benchmarks.

#include <cstdint>

#include "dsl/base/dtype.h"
#include "tools/lib/host_buffer.h"

namespace tessera::tools {

/// `count` values, the same for the same seed on every machine: floats of both signs with
/// magnitudes from 1/8 to 4 (no NaN, no infinity), booleans, signed integers from -8 to 7, unsigned
/// integers from 0 to 15; 8-bit integers take all values. Large tensors repeat a block of about a
/// million values, so filling gigabytes stays quick.
HostBuffer random_tensor(DType dtype, int64_t count, uint64_t seed);

}  // namespace tessera::tools
