#pragma once
// Limits of extents and grids that keep indices within 32 bits.

#include <cstdint>

namespace tessera::ir {

/// Largest extent. A tile that begins inside an extent may reach less than 2^24 past its end, and its
/// indices must fit in i32.
constexpr int64_t kLargestExtent = (int64_t{1} << 31) - (int64_t{1} << 24) - 1;

/// Of a grid, along y and z.
constexpr int64_t kMostBlocksYZ = 65535;

}  // namespace tessera::ir
