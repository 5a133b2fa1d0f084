#include "tests/reference/mhc_pre.h"

#include <cmath>
#include <vector>

#include "tests/reference/mhc.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {

using test::HostTensor;

float round_to_tf32(float value) {
  if (std::isnan(value)) return float_of(nan_code(DType::f32));
  // Adding half a step to the magnitude carries into the exponent where it must; infinity has no
  // bits to lose.
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = (bits & 0x7FFFFFFFU) + 0x1000U;
  return float_of((bits & 0x80000000U) | (magnitude & 0xFFFFE000U));
}

HostTensor round_to_tf32(const HostTensor& x) {
  HostTensor out(DType::f32, x.shape());
  for (int64_t e = 0; e < x.size(); ++e) {
    out.set_bits(e, bits_of(round_to_tf32(float_of(static_cast<uint32_t>(x.bits(e))))));
  }
  return out;
}

NormFnResult norm_fn_fwd(const HostTensor& residual, const HostTensor& fn,
                         const HostTensor* norm_weight, double eps) {
  const Dims& shape = residual.shape();
  const int64_t rank = shape.rank, m = fn.shape()[0], width = fn.shape()[1];
  std::vector<double> weights;  // F', exact
  for (int64_t e = 0; e < fn.size(); ++e) {
    float product = static_cast<float>(fn.value(e));
    if (norm_weight != nullptr) product *= static_cast<float>(norm_weight->value(e % width));
    weights.push_back(static_cast<double>(round_to_tf32(product)));
  }
  Dims tokens;
  for (int i = 0; i + 2 < rank; ++i) tokens.push_back(shape[i]);
  Dims rows = tokens;
  rows.push_back(m);
  NormFnResult result{HostTensor(DType::f32, rows), HostTensor(DType::f32, rows),
                      HostTensor(DType::f32, tokens)};
  for (int64_t t = 0; t < result.sqrsum.size(); ++t) {
    std::vector<double> y;
    double squares = 0;
    for (int64_t k = 0; k < width; ++k) {
      y.push_back(residual.value(t * width + k));
      squares += y.back() * y.back();
    }
    result.sqrsum.set_value(t, squares);
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k) {
        sum += weights[static_cast<size_t>(j * width + k)] * y[static_cast<size_t>(k)];
      }
      result.out_mul.set_value(t * m + j, sum);
      // Without columns there is nothing to normalise: +0.
      const double mean = width == 0 ? 1 : squares / static_cast<double>(width);
      result.out.set_value(t * m + j, sum / std::sqrt(mean + eps));
    }
  }
  return result;
}

PreBigFuseResult pre_big_fuse(const HostTensor& residual, const HostTensor& fn,
                              const HostTensor& scale, const HostTensor& base,
                              const HostTensor* norm_weight, const PreBigFuseOptions& options) {
  const HostTensor mixes = norm_fn_fwd(residual, fn, norm_weight, options.norm_eps).out;
  SplitMixes split = pre_split_mixes_fwd(mixes, scale, base, options.post_mult, options.pre_eps);
  return {std::move(split.post_mix),
          sinkhorn_fwd(split.comb_logits, options.sinkhorn_repeat, options.sinkhorn_eps),
          pre_apply_mix_fwd(residual, split.pre_mix)};
}

}  // namespace tessera::reference
