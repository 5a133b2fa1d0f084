#pragma once
// Small tensors whose values a test spells out.

#include <vector>

#include "tests/support/host_tensor.h"

namespace tessera::test {

/// Row-major, element i = values[i % number of values].
inline HostTensor tensor_of(DType dtype, Dims shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, values[static_cast<size_t>(i) % values.size()]);
  }
  return tensor;
}

}  // namespace tessera::test
