// The software form of f32 to e2m1: the same steps in C++ against the definition, for values of
// every kind. tests/gpu compares the CUDA text itself.

#include <cmath>

#include "tests/reference/numeric.h"
#include "tests/support/catch.h"

using namespace tessera;
using reference::bits_of;
using reference::float_of;

namespace {

uint32_t round_to_e2m1(float x) {
  const float magnitude = std::fabs(x);
  const float halves = std::fma(magnitude, 2.0F, 12582912.0F), ones = magnitude + 12582914.0F;
  const float below = std::fma(magnitude, -0x1p21F, 10485761.0F);
  const float six = below > 0.0F ? std::fmin(below, 1.0F) : 0.0F;  // also of a NaN
  const float code = std::fmin(std::fmin(halves, ones), 12582919.0F - six);
  // The instruction takes the other operand of a signalling NaN, too: it has no sign.
  const uint32_t sign = std::isnan(x) ? 0 : bits_of(std::fmin(x, 6.0F)) >> 28 & 8U;
  return (bits_of(code) & 7U) | sign;
}

/// The nearest f16 of a sum that a double holds exactly.
double as_f16(double x) {
  return reference::decode(DType::f16, reference::encode(DType::f16, x));
}

/// The same by f16, of numbers only.
uint32_t round_f16_to_e2m1(double x) {
  const double magnitude = std::fabs(std::fmax(std::fmin(x, 6.0), -6.0));
  const double halves = as_f16(magnitude * 2 + 1024), ones = as_f16(magnitude + 1026);
  const double twos = as_f16(magnitude / 2 + 1028);
  const uint32_t code = reference::encode(DType::f16, std::fmin(std::fmin(halves, ones), twos));
  return (code & 7U) | (std::signbit(x) ? 8U : 0U);
}

}  // namespace

TEST_CASE("the lowest of three lines rounds f16 to e2m1", "[conversions]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double x = reference::decode(DType::f16, bits);
    if (std::isnan(x)) continue;
    CAPTURE(bits);
    REQUIRE(round_f16_to_e2m1(x) == reference::encode(DType::e2m1, x));
  }
}

TEST_CASE("the lowest of three lines rounds f32 to e2m1", "[conversions]") {
  // Sign, exponent and the upper mantissa bits in all combinations, with the lower bits at both ends
  // and around every tie that they can form.
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      const float x = float_of(high << 16 | low);
      REQUIRE(round_to_e2m1(x) == reference::encode(DType::e2m1, static_cast<double>(x)));
    }
  }
  CHECK(round_to_e2m1(float_of(0xFFC00000)) == 7);
}
