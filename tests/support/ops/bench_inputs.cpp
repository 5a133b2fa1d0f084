#include "tests/support/ops/bench_inputs.h"

#include <algorithm>
#include <cmath>

#include "kernels/op.h"
#include "tools/lib/calls/random_tensor.h"
#include "tools/lib/calls/tensor_placement.h"

namespace tessera::test {
namespace {

// Rows of `fn` so small that products are about 1: their tolerances are absolute near 0.
void make_small(HostTensor& fn) {
  const double scale = 1 / std::sqrt(static_cast<double>(fn.shape()[1]));
  for (int64_t i = 0; i < fn.size(); ++i) fn.set_value(i, fn.value(i) * scale);
}

}  // namespace

OpCase case_of(const kernels::BenchCase& measured) {
  OpCase test;
  test.label = measured.label;
  test.params = measured.params;
  uint64_t seed = 1;
  for (const kernels::BenchCase::Input& input : measured.inputs) {
    HostTensor tensor = input.strides.rank == 0
                            ? HostTensor(input.dtype, input.shape)
                            : HostTensor(input.dtype, input.shape, input.strides);
    if (input.values) {
      for (int64_t i = 0; i < tensor.size(); ++i) {
        tensor.set_bits(i, static_cast<uint64_t>(input.values(i)));
      }
    } else {
      const tools::HostBuffer values = tools::random_tensor(input.dtype, tensor.size(), seed++);
      if (!tensor.view().is_row_major()) {
        tools::scatter(values.bytes(), input.shape, tensor.strides(), bytes(input.dtype),
                       tensor.storage());
      } else {
        std::copy(values.bytes().begin(), values.bytes().end(), tensor.storage().begin());
      }
    }
    if (input.name == "fn") make_small(tensor);
    test.inputs[input.name] = std::move(tensor);
  }
  return test;
}

}  // namespace tessera::test
