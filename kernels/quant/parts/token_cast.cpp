#include "kernels/quant/parts/token_cast.h"

#include <algorithm>
#include <numeric>

#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

int64_t round_up(int64_t a, int64_t b) {
  return num_blocks(a, b) * b;
}

}  // namespace

bool is_ordinary_group(int64_t group) {
  return group == 16 || group == 32 || group == 64 || group == 128;
}

TokenCastSpec token_cast_spec(const Call& c) {
  const TensorView x = c.tensor("x");
  const auto layout_of = [&](const char* name) {
    return c.find(name) ? sf_layout_of(c.params(), name) : SfLayout::row_major;
  };
  TokenCastSpec s;
  s.in = x.dtype;
  s.format = c.find("format") ? c.dtype("format") : DType::e4m3;
  s.sf_layout = layout_of("sf_layout");
  s.x_sf_layout = layout_of("x_sf_layout");
  s.round_sf = c.find("round_sf") && c.flag("round_sf");
  s.align = static_cast<uint8_t>(c.align({"x"}));
  s.stride_multiple = static_cast<int16_t>(std::gcd(step(x, 0), int64_t{16}));
  s.hidden = c.i32("H");
  s.group = c.i32(c.find("num_per_channels") ? "num_per_channels" : "H");
  s.block_rows = c.has("x_sf") ? c.i32("br") : 0;
  s.block_cols = c.has("x_sf") ? c.i32("bc") : 0;
  return s;
}

TokenTile whole_row_tile(int64_t hidden, int64_t vector, int64_t most) {
  for (const int64_t threads : {128, 256, 512, 1024}) {
    const int64_t lanes = std::gcd(hidden / vector, threads);
    if (hidden % vector == 0 && hidden / lanes <= most) {
      return {threads / lanes, hidden, static_cast<int>(threads), hidden, 1};
    }
    const int64_t padded = round_up(hidden, threads * vector);
    if (padded / threads <= most) {
      return {1, padded, static_cast<int>(threads), padded, 1};
    }
  }
  return {1, hidden, 1024, hidden, 1};
}

TokenTile pick_token_tile(const TokenCastSpec& s, int64_t groups_together) {
  if (!is_ordinary_group(s.group)) return whole_row_tile(s.hidden, s.in == DType::f32 ? 4 : 8);
  constexpr int64_t kElements = 4096;
  const int64_t least = std::max<int64_t>(128, s.group * groups_together);
  int64_t cols = 1024;
  while (cols > least && round_up(s.hidden, cols) * 8 > s.hidden * int64_t{9}) cols /= 2;
  return {kElements / cols, cols, 128, s.group, cols / s.group};
}

}  // namespace tessera::kernels
