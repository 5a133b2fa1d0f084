#include "tests/support/random_tensor.h"

#include <array>
#include <cmath>
#include <limits>

#include "tests/reference/numeric.h"

namespace tessera::test {
namespace {

constexpr int64_t kRun = 16;  // elements of one mood; small against every group of columns

// One element of a run; `mood` is shared by the run, so that most runs stay free of infinities and
// NaN.
double nasty_value(Random& random, uint64_t mood, int scale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static const std::array<double, 10> kSpecial = {
      0.0, -0.0, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN(),
      1.0, -1.0, 448.0,     6.0,        65504.0};
  switch (mood) {
    case 0:
      return random.next() % 2 == 0 ? 0.0 : -0.0;
    case 1:
      return kSpecial[random.next() % kSpecial.size()];
    case 2:
      return std::ldexp(random.next() % 2 == 0 ? 1.0 : -1.0,
                        scale - static_cast<int>(random.below(20)));
    case 3:
      return std::ldexp(random.normal(), -140);  // subnormal in f32 and bf16
    case 4:
      return random.next() % 2 == 0 ? 0x1.FFFFFEp127 : random.normal();  // FLT_MAX
    default:
      return std::ldexp(random.normal(), scale);
  }
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

int64_t Random::below(int64_t bound) {
  return static_cast<int64_t>(next() % static_cast<uint64_t>(bound));
}

double Random::uniform() {
  return std::ldexp(static_cast<double>(next() >> 11), -53);
}

double Random::normal() {
  const uint64_t draw = next();
  const uint64_t sum =
      (draw & 0xFFFF) + (draw >> 16 & 0xFFFF) + (draw >> 32 & 0xFFFF) + (draw >> 48);
  return (static_cast<double>(sum) / 65536.0 - 2.0) * std::sqrt(3.0);
}

HostTensor random_tensor(DType dtype, Dims shape, Values values, uint64_t seed) {
  return random_tensor(dtype, shape, row_major_strides(shape), values, seed);
}

HostTensor random_tensor(DType dtype, Dims shape, Dims strides, Values values, uint64_t seed) {
  HostTensor tensor(dtype, shape, strides);
  fill_random(tensor, values, seed);
  return tensor;
}

void fill_random(HostTensor& tensor, Values values, uint64_t seed) {
  Random random(seed);
  const DType dtype = tensor.dtype();
  const int64_t size = tensor.size();
  if (!is_float(dtype) || values == Values::bits) {
    const uint64_t mask = dtype == DType::boolean ? 1 : ~uint64_t{0};
    for (int64_t i = 0; i < size; ++i) tensor.set_bits(i, random.next() & mask);
    return;
  }
  uint64_t mood = 0;
  int scale = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (values == Values::nasty && i % kRun == 0) {
      mood = random.next() % 32;
      scale = static_cast<int>(random.below(260)) - 140;
    }
    const double value = values == Values::normal    ? random.normal()
                         : values == Values::uniform ? random.uniform()
                                                     : nasty_value(random, mood, scale);
    tensor.set_value(i, value);
  }
}

}  // namespace tessera::test
