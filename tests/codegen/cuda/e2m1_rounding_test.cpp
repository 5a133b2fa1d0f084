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
  const float value = std::fmax(std::fmin(x, 6.0F), -6.0F);
  const uint32_t bits = bits_of(value);
  const uint32_t power = std::max(bits & 0x7F800000U, 0x3F800000U);
  const float sum = std::fma(float_of(power), 0x1.000004p22F, std::fabs(value));
  return ((bits_of(sum) + (power >> 22)) & 7U) | (bits >> 28 & 8U);
}

}  // namespace

TEST_CASE("one fused multiply-add rounds f32 to e2m1", "[conversions]") {
  // Sign, exponent and the upper mantissa bits in all combinations, with the lower bits at both ends
  // and around every tie that they can form.
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      const float x = float_of(high << 16 | low);
      if (std::isnan(x)) continue;  // fmin of the C library keeps signalling ones
      REQUIRE(round_to_e2m1(x) == reference::encode(DType::e2m1, static_cast<double>(x)));
    }
  }
  CHECK(round_to_e2m1(std::nanf("")) == 7);
  CHECK(round_to_e2m1(-std::nanf("")) == 7);
}
