#include "tests/reference/scale.h"

#include <cmath>

#include "dsl/base/error.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Scale scale_of(float amax, DType format, bool round_sf) {
  const bool is_e4m3 = format == DType::e4m3;
  TESSERA_CHECK(is_e4m3 || format == DType::e2m1, "scales are defined for e4m3 and e2m1");
  if (is_e4m3) return scale_of(amax, 448.0F, 1e-4F, round_sf);
  return scale_of(amax, 6.0F, 0x1.8p-124F, round_sf);  // the floor is 6 * 2^-126
}

Scale scale_of(float amax, float largest, float floor, bool round_sf) {
  const float clamped = amax > floor ? amax : floor;
  const float quotient = clamped / largest;
  if (!round_sf) return {quotient, largest / clamped, 0};

  int exponent = 127;  // biased; 2^(exponent - 127) is the smallest power of two >= quotient
  if (std::isinf(quotient)) {
    exponent = 254;
  } else {
    while (std::ldexp(1.0, exponent - 127) < static_cast<double>(quotient)) ++exponent;
    while (std::ldexp(1.0, exponent - 128) >= static_cast<double>(quotient)) --exponent;
  }
  const float sf = std::ldexp(1.0F, exponent - 127);
  const float inv = exponent == 254 ? 0.0F : std::ldexp(1.0F, 127 - exponent);
  return {sf, inv, static_cast<uint8_t>(exponent)};
}

SfLayout sf_layout_of(std::string_view word) {
  if (word == "row_major") return SfLayout::row_major;
  if (word == "col_major_tma") return SfLayout::col_major_tma;
  TESSERA_CHECK(word == "packed_ue8m0", "unknown scale layout " + std::string(word));
  return SfLayout::packed_ue8m0;
}

test::HostTensor make_scales(SfLayout layout, int64_t rows, int64_t cols) {
  const bool packed = layout == SfLayout::packed_ue8m0;
  const int64_t words = packed ? ceil_div(cols, 4) : cols;
  const int64_t pitch = 4 * ceil_div(rows, 4);
  const Dims shape{rows, words};
  test::HostTensor scales =
      layout == SfLayout::row_major || rows == 0
          ? test::HostTensor(packed ? DType::i32 : DType::f32, shape)
          : test::HostTensor(packed ? DType::i32 : DType::f32, shape, {1, pitch}, words * pitch);
  scales.fill_bytes(std::byte{0});
  return scales;
}

void store_scale(test::HostTensor& scales, SfLayout layout, int64_t row, int64_t col,
                 const Scale& scale) {
  const int64_t words = scales.shape()[1];
  if (layout != SfLayout::packed_ue8m0) {
    scales.set_bits(row * words + col, bits_of(scale.sf));
    return;
  }
  const int64_t element = row * words + col / 4;
  const uint64_t byte = uint64_t{scale.exponent} << (8 * (col % 4));
  scales.set_bits(element, scales.bits(element) | byte);
}

float load_scale(const test::HostTensor& scales, SfLayout layout, int64_t row, int64_t col) {
  const int64_t words = scales.shape()[1];
  if (layout != SfLayout::packed_ue8m0) {
    return float_of(static_cast<uint32_t>(scales.bits(row * words + col)));
  }
  const uint64_t word = scales.bits(row * words + col / 4);
  const auto byte = static_cast<uint32_t>(word >> (8 * (col % 4))) & 0xFFU;
  return float_of(byte << 23);
}

}  // namespace tessera::reference
