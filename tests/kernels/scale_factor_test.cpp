// The rounded scale of every format against the division that defines it, where the two could part:
// one float below, at and above each power of two times the format's maximum.

#include "kernels/quant/parts/scale_factor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Value;

namespace {

ir::Kernel rounded_scales(const kernels::QuantFormat& format, int64_t count) {
  dsl::Builder k("rounded_scales");
  auto amax = k.input("amax", DType::f32, {count});
  auto exponent = k.output("exponent", DType::u32, {count});
  auto scale = k.output("scale", DType::f32, {count});
  auto inverse = k.output("inverse", DType::f32, {count});
  k.launch({1}, {.threads = 128});
  k.parallel({count}, [&](Value i) {
    const auto sf = kernels::scale_factor(k, format, amax(i), true);
    exponent(i) = sf.exponent;
    scale(i) = sf.scale;
    inverse(i) = sf.inverse;
  });
  return k.finish();
}

// The smallest power of two that is not below the quotient; of infinity 2^127.
float power_above(float quotient) {
  int exponent = 0;
  const float fraction = std::frexp(quotient, &exponent);  // in [1/2, 1)
  return std::isinf(quotient) ? 0x1p127f
                              : std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

}  // namespace

TEST_CASE("a rounded scale is the power of two that the quotient asks for", "[quant]") {
  const kernels::QuantFormat format = GENERATE(kernels::kE4m3, kernels::kE2m1, kernels::kE5m6);
  CAPTURE(format.max);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<double> values = {0, format.amax_floor, kInfinity, std::numeric_limits<float>::max()};
  for (int n = -126; n < 127; ++n) {
    const float edge = std::ldexp(format.max, n);
    if (std::isinf(edge)) continue;
    for (const float value : {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, kInfinity)}) {
      values.push_back(value);
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  const HostTensor amax = tensor_of(DType::f32, {count}, values);
  const HostTensor exponent(DType::u32, {count}), scale(DType::f32, {count}),
      inverse(DType::f32, {count});
  run_kernel(rounded_scales(format, count), {&amax, &exponent, &scale, &inverse});
  for (int64_t i = 0; i < count; ++i) {
    const float clamped = std::max(static_cast<float>(amax.value(i)), format.amax_floor);
    const float wanted = power_above(clamped / format.max);
    CAPTURE(clamped);
    CHECK(scale.value(i) == wanted);
    CHECK(exponent.value(i) == std::bit_cast<uint32_t>(wanted) >> 23);
    CHECK(inverse.value(i) == (clamped == kInfinity ? 0.0 : 1.0 / wanted));
  }
}
