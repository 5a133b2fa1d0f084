#pragma once
// Limits of extents and grids: indices are within 32 bits, or within 64 where a dim is wide.

#include <cstdint>

namespace tessera::ir {

/// Largest extent. A tile that begins inside an extent may reach less than 2^24 past its end, and its
/// indices must fit in i32.
constexpr int64_t kLargestExtent = (int64_t{1} << 31) - (int64_t{1} << 24) - 1;

/// Largest extent of a wide dim: bytes of an address space.
constexpr int64_t kLargestWideExtent = int64_t{1} << 47;

/// The limit of a grid along y and z.
constexpr int64_t kMostBlocksYZ = 65535;

}  // namespace tessera::ir
