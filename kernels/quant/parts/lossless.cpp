#include "kernels/quant/parts/lossless.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/checks/value_check.h"

namespace tessera::kernels {
namespace {

constexpr uint32_t kSignAndMantissa = 0x807FFFFF;

template <class T>
T element(const TensorView& view, int64_t row, int64_t col) {
  T value;
  const auto* data = static_cast<const std::byte*>(view.data);
  std::memcpy(&value, data + (row * view.strides[0] + col * view.strides[1]) * int64_t{sizeof(T)},
              sizeof(T));
  return value;
}

/// The bits of the scale of block (row, col), as f32.
uint32_t scale_bits(const TensorView& x_sf, int64_t row, int64_t col) {
  if (x_sf.dtype == DType::f32) return element<uint32_t>(x_sf, row, col);
  return (element<uint32_t>(x_sf, row, col / 4) >> (col % 4 * 8) & 255) << 23;
}

struct Region {
  int64_t row, col, end_row, end_col;
};

/// True if every code of the region is +0 or -0. Columns are even.
bool holds_zeros(const TensorView& x, const Region& r) {
  for (int64_t row = r.row; row < r.end_row; ++row) {
    for (int64_t col = r.col; col < r.end_col; ++col) {
      const auto pair = element<uint8_t>(x, row, col / 2);
      if ((pair >> (col % 2 * 4) & 7) != 0) return false;
    }
  }
  return true;
}

}  // namespace

void require_lossless_scales(const Call& c) {
  const TensorView &x = c.given("x"), &x_sf = c.given("x_sf");
  if (!values_are_checked(x) || !values_are_checked(x_sf)) return;
  const int64_t tokens = c["T"], hidden = c["H"], br = c["br"], bc = c["bc"];
  const int64_t rows = num_blocks(tokens, br), cols = num_blocks(hidden, bc);
  for (int64_t row = 0; row < rows && x_sf.dtype == DType::f32; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const uint32_t bits = scale_bits(x_sf, row, col), exponent = bits >> 23 & 255;
      if ((bits & kSignAndMantissa) == 0 && exponent > 0 && exponent < 255) continue;
      c.need(false, "x_sf", out_of_range("x_sf"), "positive finite powers of two",
             fmt::format("{} at [{}, {}]", std::bit_cast<float>(bits), row, col));
    }
  }
  const int64_t rows_together = c["out_br"] / br, cols_together = c["out_bc"] / bc;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t first_row = row / rows_together * rows_together;
      const int64_t first_col = col / cols_together * cols_together;
      const auto exponent = static_cast<int64_t>(scale_bits(x_sf, row, col) >> 23 & 255);
      int64_t most = 0;
      for (int64_t r = first_row; r < std::min(first_row + rows_together, rows); ++r) {
        for (int64_t q = first_col; q < std::min(first_col + cols_together, cols); ++q) {
          most = std::max(most, static_cast<int64_t>(scale_bits(x_sf, r, q) >> 23 & 255));
        }
      }
      const Region block = {row * br, col * bc, std::min((row + 1) * br, tokens),
                            std::min((col + 1) * bc, hidden)};
      if (exponent - std::max<int64_t>(most - kMostShift, 0) >= kLeastShift) continue;
      c.need(holds_zeros(x, block), "x_sf", kTooFarApart,
             fmt::format("at most 2^{} where codes are not 0", kMostShift - kLeastShift),
             fmt::format("2^{} at [{}, {}]", most - exponent, row, col));
    }
  }
}

dsl::Value input_exponent(dsl::Builder& k, const LosslessSpec& s, const ScaleReader& x_sf,
                          const dsl::Value& row, const dsl::Value& col,
                          const dsl::Value& is_inside) {
  using namespace dsl;
  auto bits = k.let("bits", reinterpret(DType::u32, x_sf.load(row, col)));
  auto exponent = k.let("exponent", i32(bits >> 23 & 255));
  if (s.x_sf_layout != SfLayout::packed_ue8m0) {
    auto is_power = (bits & kSignAndMantissa) == 0 && exponent > 0 && exponent < 255;
    k.report_unless(is_power || !is_inside, out_of_range("x_sf"));
  }
  return select(is_inside, exponent, 0);
}

ScaleFactor output_scale(dsl::Builder& k, const dsl::Value& most) {
  using namespace dsl;
  auto exponent = k.let("out_exponent", u32(max(most - kMostShift, 0)));
  return {reinterpret(DType::f32, exponent << 23), {}, exponent};
}

}  // namespace tessera::kernels
