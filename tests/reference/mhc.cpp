#include "tests/reference/mhc.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;

// Values of f32 and bf16 tensors are exact in f32.
float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

// The first dimensions of a shape, then others.
Dims shape_of(const Dims& from, int num_first, std::initializer_list<int64_t> others) {
  Dims shape;
  for (int i = 0; i < num_first; ++i) shape.push_back(from[i]);
  for (const int64_t extent : others) shape.push_back(extent);
  return shape;
}

}  // namespace

HostTensor pre_apply_mix_fwd(const HostTensor& x, const HostTensor& mix) {
  const int rank = x.shape().rank;
  const int64_t num_streams = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
  HostTensor out(DType::bf16, shape_of(x.shape(), rank - 2, {hidden}));
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t t = i / hidden, h = i % hidden;
    float sum = 0;
    for (int64_t n = 0; n < num_streams; ++n) {
      const int64_t row = t * num_streams + n;
      sum = std::fma(at(mix, row), at(x, row * hidden + h), sum);
    }
    out.set_value(i, static_cast<double>(sum));
  }
  return out;
}

}  // namespace tessera::reference
