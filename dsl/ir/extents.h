#pragma once
// Limits of extents and grids, which keep indices within 32 bits.

#include <cstdint>

namespace tessera::ir {

/// Extents are at most this. A tile that begins inside an extent may reach past its end, by less than
/// 2^24: its indices must still fit i32.
constexpr int64_t kLargestExtent = (int64_t{1} << 31) - (int64_t{1} << 24) - 1;

/// Of a grid along y and z.
constexpr int64_t kMostBlocksYZ = 65535;

}  // namespace tessera::ir
