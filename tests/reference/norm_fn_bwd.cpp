#include "tests/reference/norm_fn_bwd.h"

#include <cmath>
#include <vector>

#include "tests/reference/mhc_pre.h"

namespace tessera::reference {

using test::HostTensor;

NormFnGradients norm_fn_bwd(const NormFnBwdInputs& in, NormFnGradients given, double eps) {
  const int64_t m = in.fn.shape()[0], width = in.fn.shape()[1], tokens = in.sqrsum.size();
  const auto place = [&](int64_t row, int64_t k) { return static_cast<size_t>(row * width + k); };
  const auto weight = [&](int64_t k) {
    return in.norm_weight == nullptr ? 1.0 : in.norm_weight->value(k);
  };
  std::vector<double> rounded;  // F'
  for (int64_t e = 0; e < in.fn.size(); ++e) {
    const auto product = static_cast<float>(in.fn.value(e)) * static_cast<float>(weight(e % width));
    rounded.push_back(static_cast<double>(round_to_tf32(product)));
  }
  std::vector<double> fn_grad(rounded.size(), 0.0);  // dF'
  const double width_eps =
      static_cast<double>(static_cast<float>(eps * static_cast<double>(width)));
  for (int64_t t = 0; t < tokens; ++t) {
    const auto square = static_cast<float>(in.sqrsum.value(t));
    const float mean = square / static_cast<float>(width) + static_cast<float>(eps);
    const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(mean)));
    std::vector<double> product_grad;  // da
    double factor_grad = 0;            // dr
    for (int64_t j = 0; j < m; ++j) {
      const auto grad = static_cast<float>(in.grad_out.value(t * m + j));
      product_grad.push_back(static_cast<double>(round_to_tf32(grad * factor)));
      factor_grad += static_cast<double>(grad) * in.out_mul.value(t * m + j);
    }
    const double square_grad =
        factor_grad * static_cast<double>(factor) / (static_cast<double>(square) + width_eps) / -2;
    for (int64_t k = 0; k < width; ++k) {
      const double y = in.residual.value(t * width + k);
      double sum = given.residual.value(t * width + k);
      for (int64_t j = 0; j < m; ++j) {
        sum += product_grad[static_cast<size_t>(j)] * rounded[place(j, k)];
        fn_grad[place(j, k)] += product_grad[static_cast<size_t>(j)] * y;
      }
      given.residual.set_value(t * width + k, sum + 2 * y * square_grad);
    }
  }
  if (tokens == 0) return given;
  for (int64_t k = 0; k < width; ++k) {
    double weight_grad = 0;
    for (int64_t j = 0; j < m; ++j) {
      const int64_t e = j * width + k;
      given.fn.set_value(e, given.fn.value(e) + fn_grad[place(j, k)] * weight(k));
      weight_grad += fn_grad[place(j, k)] * in.fn.value(e);
    }
    if (in.norm_weight == nullptr) continue;
    given.norm_weight.set_value(k, given.norm_weight.value(k) + weight_grad);
  }
  return given;
}

}  // namespace tessera::reference
