#pragma once
// How ops that stream whole rows of hidden columns tile them.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

namespace tessera::kernels::mhc {

/// Tokens and columns of one block; `chunks` blocks cover a row.
struct RowTile {
  int64_t rows, cols, chunks;
  int threads;
};

/// One vector of 8 columns per thread: a handful of streams keeps enough bytes in flight, and many
/// small blocks hide each other's latency. 128 to 256 threads along one row if they divide it (7168
/// = 4 x 224 x 8, 2560 = 2 x 160 x 8), else several short rows per block. Rows that are no multiple
/// of 64 columns are padded.
inline RowTile pick_row_tile(int64_t hidden) {
  constexpr int64_t kVector = 8;
  for (int threads = 256; threads >= 128; threads -= 32) {
    const int64_t cols = threads * kVector;
    if (hidden % cols == 0) return {1, cols, hidden / cols, threads};
  }
  constexpr int64_t kElements = 1024;
  const auto power_of_two = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(hidden)));
  const int64_t cols =
      hidden % 64 == 0 ? std::gcd(hidden, kElements) : std::clamp(power_of_two, kVector, kElements);
  return {kElements / cols, cols, (hidden + cols - 1) / cols, 128};
}

/// Threads of a block that loops along a row, one vector of 8 columns per thread and step. A count
/// that divides the row into whole vectors (7168 = 4 x 224 x 8, 2560 = 2 x 160 x 8), else enough for
/// the row; at most `most`.
inline int pick_row_threads(int64_t hidden, int most) {
  constexpr int64_t kVector = 8;
  for (int threads = most; threads >= 128; threads -= 32) {
    if (hidden % (threads * kVector) == 0) return threads;
  }
  const int64_t vectors = (hidden + kVector - 1) / kVector;
  return static_cast<int>(std::clamp<int64_t>((vectors + 31) / 32 * 32, 32, most));
}

}  // namespace tessera::kernels::mhc
