#include "tests/reference/mhc_streams_bwd.h"

#include <cmath>

namespace tessera::reference {

using test::HostTensor;

HostTensor expand_to_mhc_bwd(const HostTensor& grad_out) {
  const int rank = grad_out.shape().rank;
  const int64_t n = grad_out.shape()[rank - 2], hidden = grad_out.shape()[rank - 1];
  Dims shape;
  for (int i = 0; i < rank; ++i) {
    if (i != rank - 2) shape.push_back(grad_out.shape()[i]);
  }
  HostTensor grad_x(DType::bf16, shape);
  for (int64_t e = 0; e < grad_x.size(); ++e) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += static_cast<float>(grad_out.value((e / hidden * n + i) * hidden + e % hidden));
    }
    grad_x.set_value(e, static_cast<double>(sum));
  }
  return grad_x;
}

ApplyMixGradients pre_apply_mix_bwd(const HostTensor& grad_out, const HostTensor& x,
                                    const HostTensor& mix, const HostTensor* grad_x) {
  const int rank = x.shape().rank;
  const int64_t n = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
  ApplyMixGradients result{HostTensor(DType::bf16, x.shape()), HostTensor(DType::f32, mix.shape())};
  for (int64_t row = 0; row < mix.size(); ++row) {
    double sum = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      const int64_t e = row * hidden + h;
      const double gradient = grad_out.value(row / n * hidden + h);
      sum += x.value(e) * gradient;
      const double before = grad_x == nullptr ? 0 : grad_x->value(e);
      const float after = std::fma(static_cast<float>(mix.value(row)), static_cast<float>(gradient),
                                   static_cast<float>(before));
      result.x.set_value(e, static_cast<double>(after));
    }
    result.mix.set_value(row, sum);
  }
  return result;
}

}  // namespace tessera::reference
