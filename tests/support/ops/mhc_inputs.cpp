#include "tests/support/ops/mhc_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/support/random_tensor.h"

namespace tessera::test {

Dims joined(const Dims& tokens, std::initializer_list<int64_t> others) {
  Dims shape = tokens;
  for (const int64_t extent : others) shape.push_back(extent);
  return shape;
}

HostTensor scaled_normal(const Dims& shape, uint64_t seed, double scale, double offset) {
  HostTensor tensor = random_tensor(DType::f32, shape, Values::normal, seed);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, offset + scale * tensor.value(i));
  return tensor;
}

HostTensor random_fn(int64_t entries, int64_t width, uint64_t seed) {
  const double columns = static_cast<double>(std::max<int64_t>(width, 1));
  return scaled_normal({entries, width}, seed, 1 / std::sqrt(columns));
}

HostTensor random_weight(int64_t width, uint64_t seed) {
  return scaled_normal({width}, seed, 0.1, 1);
}

std::string Extents::label(std::string_view values) const {
  return fmt::format("{} n={} H={} {}", to_string(tokens), streams, hidden, values);
}

const std::vector<Extents>& all_extents() {
  static const std::vector<Extents> all = {
      {{3}, 4, 7168},  {{5}, 4, 2560}, {{7}, 4, 1280},  {{37}, 4, 256},      {{6}, 2, 512},
      {{3}, 4, 4096},  {{2}, 1, 1280}, {{9}, 3, 100},   {{33}, 5, 72},       {{2}, 16, 64},
      {{4}, 4, 1},     {{3}, 4, 33},   {{1}, 4, 1000},  {{2}, 8, 1600},      {{3}, 2, 2056},
      {{2, 3}, 4, 64}, {{0}, 4, 256},  {{0, 3}, 4, 64}, {{2, 1, 5}, 4, 256}, {{3}, 4, 0}};
  return all;
}

}  // namespace tessera::test
