#include "tests/reference/lane_sum.h"

#include <array>
#include <cmath>

namespace tessera::reference {

float lane_sum(const std::vector<float>& a, const std::vector<float>& b) {
  std::array<float, 512> lanes = {};
  for (size_t i = 0; i < a.size(); ++i) {
    float& lane = lanes[i / 4 % 512];
    lane = std::fma(a[i], b[i], lane);
  }
  for (size_t distance = 1; distance < 32; distance *= 2) {
    const std::array<float, 512> before = lanes;
    for (size_t i = 0; i < 512; ++i) lanes[i] = before[i & ~distance] + before[i | distance];
  }
  float sum = lanes[0];
  for (size_t group = 1; group < 16; ++group) sum += lanes[32 * group];
  return sum;
}

}  // namespace tessera::reference
