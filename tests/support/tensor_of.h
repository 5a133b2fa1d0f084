#pragma once
// Small row-major tensors whose values a test spells out.

#include <vector>

#include "tests/support/host_tensor.h"

namespace tessera::test {

/// A tensor whose elements are value(row-major number).
///
/// Example: tensor_by(DType::i32, {8, 64}, [](int64_t i) { return i % 7 - 3; })
template <class Fn>
HostTensor tensor_by(DType dtype, Dims shape, const Fn& value) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, static_cast<double>(value(i)));
  return tensor;
}

/// A tensor with these values, from the first one again where there are more elements.
inline HostTensor tensor_of(DType dtype, Dims shape, const std::vector<double>& values) {
  return tensor_by(dtype, shape,
                   [&](int64_t i) { return values[static_cast<size_t>(i) % values.size()]; });
}

}  // namespace tessera::test
