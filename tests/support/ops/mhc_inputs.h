#pragma once
// The shared inputs of the cases of the hyper-connection ops.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/host_tensor.h"

namespace tessera::test {

/// The token dimensions and those behind them.
Dims joined(const Dims& tokens, std::initializer_list<int64_t> others);

/// f32 of normal values times `scale`, `offset` added.
HostTensor scaled_normal(const Dims& shape, uint64_t seed, double scale, double offset = 0);
/// Rows so small that products with normal values are about 1.
HostTensor random_fn(int64_t entries, int64_t width, uint64_t seed);
/// About 1.
HostTensor random_weight(int64_t width, uint64_t seed);

struct Extents {
  Dims tokens;
  int64_t streams, hidden;

  std::string label(std::string_view values) const;
};
/// Hidden sizes of models and odd ones, one stream and many, several token dimensions, empty ones.
const std::vector<Extents>& all_extents();

}  // namespace tessera::test
