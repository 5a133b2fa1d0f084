#include "tests/support/ops/cast_values.h"

#include <cmath>
#include <limits>

#include "tests/reference/numeric.h"

namespace tessera::test {

std::vector<float> tie_values(DType format) {
  std::vector<float> values;
  const uint32_t largest = reference::max_finite_code(format);
  for (uint32_t code = 0; code < largest; ++code) {
    const double low = reference::decode(format, code);
    const double high = reference::decode(format, code + 1);
    const auto tie = static_cast<float>((low + high) / 2);
    for (const float v :
         {tie, std::nextafterf(tie, 0.0F), std::nextafterf(tie, 1e9F), static_cast<float>(low)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  return values;
}

std::vector<std::vector<double>> boundary_groups() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {
      {0.0},
      {-0.0},
      {448.0, -1.0},
      {std::nextafterf(448.0F, 1e9F)},
      {-std::nextafterf(448.0F, 0.0F)},
      {6.0},
      {std::nextafterf(6.0F, 9.0F)},
      {896.0, 447.9, 3.0},
      {static_cast<double>(1e-4F)},
      {static_cast<double>(std::nextafterf(1e-4F, 1.0F))},
      {static_cast<double>(std::nextafterf(1e-4F, 0.0F)), 1e-9},
      {0x1p-149},
      {0x1.FFFFFEp127, 1.0, -1.0},
      {0x1p-126, 0x1p-130},
      {kNan},
      {kNan, 1.0, -2.0},
      {kInfinity, 1.0, -1.0, 0.0, -0.0},
      {-kInfinity, kInfinity, kNan, 3.0},
      {1.0, -1.0, 0.3333, 0.0, -0.0, 1e-20, -1e-20},
  };
}

}  // namespace tessera::test
