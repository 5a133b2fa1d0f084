#pragma once
// What a block of a matrix product computes at a time.

#include <cstdint>

namespace tessera::kernels::gemm {

struct Tile {
  int32_t rows, columns;  // of out
  int32_t step;           // along k
  int32_t stages;         // steps on their way
  int32_t by_roles;       // 1: one role loads, another multiplies
  /// At most so many blocks share the tiles of a persistent kernel: one for each multiprocessor of an
  /// H200. No result depends on it.
  int32_t blocks = 132;
};

/// Threads of the role that multiplies: two groups of four warps.
inline constexpr int kMultipliers = 256;

}  // namespace tessera::kernels::gemm
