#pragma once
// What a block of a matrix product computes at a time.

#include <cstdint>

namespace tessera::kernels::gemm {

struct Tile {
  int32_t rows, columns;  // of out
  int32_t step;           // along k
  int32_t stages;         // steps on their way
  int32_t by_roles;       // 1: one role loads, another multiplies
};

/// The multiprocessors of an H200. Persistent kernels have at most so many blocks, one on each; no result
/// depends on their number.
inline constexpr int kMultiprocessors = 132;
/// Threads of the role that multiplies: two groups of four warps.
inline constexpr int kMultipliers = 256;

}  // namespace tessera::kernels::gemm
