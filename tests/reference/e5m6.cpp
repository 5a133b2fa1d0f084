#include "tests/reference/e5m6.h"

#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {

uint32_t encode_e5m6(float value) {
  if (std::isnan(value)) return 0x7FF;
  const double magnitude = std::fabs(static_cast<double>(value));
  uint32_t half = encode(DType::f16, magnitude);
  if (!std::isinf(value) && half > max_finite_code(DType::f16)) half = max_finite_code(DType::f16);
  if (decode(DType::f16, half) > magnitude) --half;  // it had been rounded up
  uint32_t code = half >> 4;
  if ((code & 1) + (bits_of(value) & 0x1FFFF) > 0x10000) ++code;
  return std::signbit(value) ? code | 0x800 : code;
}

namespace {

/// The byte and the shift in it of bit `bit` (0 = the highest) of a row of words.
struct BitPlace {
  int64_t byte;
  int shift;
};
BitPlace place_of(int64_t bit) {
  const int64_t in_word = 31 - bit % 32;
  return {bit / 32 * 4 + in_word / 8, static_cast<int>(in_word % 8)};
}

}  // namespace

uint32_t load_e5m6(const test::HostTensor& x, int64_t row, int64_t col) {
  uint32_t code = 0;
  for (int64_t bit = col * 12; bit < col * 12 + 12; ++bit) {
    const BitPlace place = place_of(bit);
    code = code << 1 |
           (static_cast<uint32_t>(x.bits(row * x.shape()[1] + place.byte)) >> place.shift & 1U);
  }
  return code;
}

void store_e5m6(test::HostTensor& out, int64_t row, int64_t col, uint32_t code) {
  for (int64_t i = 0; i < 12; ++i) {
    const BitPlace place = place_of(col * 12 + i);
    const int64_t element = row * out.shape()[1] + place.byte;
    const uint64_t bit = uint64_t{1} << place.shift;
    const bool is_set = (code >> (11 - i) & 1U) != 0;
    out.set_bits(element, is_set ? out.bits(element) | bit : out.bits(element) & ~bit);
  }
}

E5m6Result per_token_cast_to_e5m6(const test::HostTensor& x, SfLayout sf_layout, bool round_sf) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  E5m6Result result;
  result.out = test::HostTensor(DType::u8, {num_tokens, hidden / 2 * 3});
  result.out.fill_bytes(std::byte{0});
  result.out_sf = make_scales(sf_layout, num_tokens, hidden > 0 ? 1 : 0);
  for (int64_t t = 0; t < num_tokens; ++t) {
    float amax = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      const auto magnitude = std::fabs(static_cast<float>(x.value(t * hidden + h)));
      if (magnitude > amax) amax = magnitude;  // false for a NaN
    }
    const Scale scale = scale_of(amax, 65024.0F, 1e-4F, round_sf);
    if (hidden > 0) store_scale(result.out_sf, sf_layout, t, 0, scale);
    for (int64_t h = 0; h < hidden; ++h) {
      const float value = static_cast<float>(x.value(t * hidden + h)) * scale.inv;
      store_e5m6(result.out, t, h, encode_e5m6(value));
    }
  }
  return result;
}

test::HostTensor cast_back_e5m6(const test::HostTensor& x, const test::HostTensor& x_sf,
                                SfLayout layout, const Dims& block, DType out_dtype) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1] / 3 * 2;
  test::HostTensor out(out_dtype, {num_tokens, hidden});
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      const float scale = load_scale(x_sf, layout, t / block[0], h / block[1]);
      const auto code = static_cast<float>(decode(DType::f16, load_e5m6(x, t, h) << 4));
      const float value = code * scale;
      out.set_bits(t * hidden + h, encode(out_dtype, static_cast<double>(value)));
    }
  }
  return out;
}

}  // namespace tessera::reference
