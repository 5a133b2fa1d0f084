#include "tests/reference/mhc_head.h"

#include <cmath>
#include <vector>

namespace tessera::reference {

using test::HostTensor;

HostTensor head_compute_mix_fwd(const HostTensor& input_mix, const HostTensor& scale,
                                const HostTensor& base, double pre_eps) {
  HostTensor out(DType::f32, input_mix.shape());
  for (int64_t e = 0; e < out.size(); ++e) {
    const double z = input_mix.value(e) * scale.value(0) + base.value(e % base.size());
    out.set_value(e, 1 / (1 + std::exp(-z)) + pre_eps);
  }
  return out;
}

HeadGradients head_compute_mix_bwd(const HostTensor& grad_out, const HostTensor& input_mix,
                                   const HostTensor& scale, const HostTensor& base,
                                   const HostTensor* grad_scale, const HostTensor* grad_base) {
  HeadGradients result{HostTensor(DType::f32, input_mix.shape()),
                       HostTensor(DType::f32, scale.shape()), HostTensor(DType::f32, base.shape())};
  double of_scale = grad_scale == nullptr ? 0 : grad_scale->value(0);
  std::vector<double> of_base;
  for (int64_t i = 0; i < base.size(); ++i) {
    of_base.push_back(grad_base == nullptr ? 0 : grad_base->value(i));
  }
  for (int64_t e = 0; e < input_mix.size(); ++e) {
    const int64_t i = e % base.size();
    const double z = input_mix.value(e) * scale.value(0) + base.value(i);
    const double s = 1 / (1 + std::exp(-z)), g = s * (1 - s) * grad_out.value(e);
    result.input_mix.set_value(e, g * scale.value(0));
    of_scale += g * input_mix.value(e);
    of_base[static_cast<size_t>(i)] += g;
  }
  result.scale.set_value(0, of_scale);
  for (int64_t i = 0; i < base.size(); ++i) {
    result.base.set_value(i, of_base[static_cast<size_t>(i)]);
  }
  return result;
}

}  // namespace tessera::reference
