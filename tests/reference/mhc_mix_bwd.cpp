#include "tests/reference/mhc_mix_bwd.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;

// The accumulator: the given values, or zeros.
std::vector<double> values_of(const HostTensor* given, int64_t size) {
  std::vector<double> values(static_cast<size_t>(size), 0);
  for (int64_t e = 0; given != nullptr && e < size; ++e) {
    values[static_cast<size_t>(e)] = given->value(e);
  }
  return values;
}

HostTensor tensor_of(const std::vector<double>& values) {
  HostTensor tensor(DType::f32, {static_cast<int64_t>(values.size())});
  for (size_t e = 0; e < values.size(); ++e) tensor.set_value(static_cast<int64_t>(e), values[e]);
  return tensor;
}

}  // namespace

SplitMixGradients pre_split_mixes_bwd(const SplitMixInputs& in, double post_mult) {
  const int64_t n = in.post_mix.shape()[in.post_mix.shape().rank - 1], entries = in.base.size();
  HostTensor grad_mixes(DType::f32, in.input_mixes.shape());
  std::vector<double> grad_scale = values_of(in.grad_scale, 3);
  std::vector<double> grad_base = values_of(in.grad_base, entries);
  for (int64_t e = 0; e < grad_mixes.size(); ++e) {
    const int64_t t = e / entries, j = e % entries, part = std::min<int64_t>(j / n, 2);
    const double m = in.input_mixes.value(e);
    double g = 0;
    if (part == 0) {
      const double p = 1 / (1 + std::exp(-(m * in.scale.value(0) + in.base.value(j))));
      g = in.grad_pre_mix.value(t * n + j) * p * (1 - p);
    } else if (part == 1) {
      const double post = in.post_mix.value(t * n + j - n);
      g = in.grad_post_mix.value(t * n + j - n) * post * (1 - post / post_mult);
    } else {
      g = in.grad_comb_logits.value(t * n * n + j - 2 * n);
    }
    grad_mixes.set_value(e, g * in.scale.value(part));
    grad_scale[static_cast<size_t>(part)] += g * m;
    grad_base[static_cast<size_t>(j)] += g;
  }
  return {std::move(grad_mixes), tensor_of(grad_scale), tensor_of(grad_base)};
}

}  // namespace tessera::reference
