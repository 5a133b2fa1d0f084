#include "kernels/gemm/parts/tile.h"

#include <algorithm>

namespace tessera::kernels::gemm {
namespace {

constexpr int64_t kMultiprocessors = 132;
constexpr int64_t kOfThreeGroups = 112;  // percent of what its size says; FP8 on an H100

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

bool is_written_by_engine(const Tile& t, const TensorView& out, int vector, int64_t depth) {
  constexpr int kWhole = 8;         // 16 bytes
  constexpr int64_t kDepth = 1024;  // at most
  return t.by_roles != 0 && t.is_swapped == 0 && out.dtype == DType::bf16 && vector == kWhole &&
         depth <= kDepth;
}

Tile soonest(int64_t slabs, int64_t rows, int64_t columns, std::span<const Tile> tiles,
             int64_t fixed) {
  const auto time = [&](const Tile& t) {
    const int64_t count = slabs * ceil_div(rows, t.rows) * ceil_div(columns, t.columns);
    const int64_t of_tile = fixed * 128 + int64_t{t.rows} * t.columns;
    const int64_t percent = t.rows > 128 ? kOfThreeGroups : 100;
    return ceil_div(count, kMultiprocessors) * of_tile * percent;
  };
  return *std::min_element(tiles.begin(), tiles.end(),
                           [&](const Tile& a, const Tile& b) { return time(a) < time(b); });
}

}  // namespace tessera::kernels::gemm
