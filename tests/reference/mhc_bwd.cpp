#include "tests/reference/mhc_bwd.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;
using Matrix = std::vector<double>;

// Values of f32 and bf16 tensors are exact in f32.
float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

size_t place(int64_t i, int64_t o, int64_t n) {
  return static_cast<size_t>(i * n + o);
}

// Sums of rows or of columns: sums[line].
std::vector<double> sums_of(const Matrix& matrix, int64_t n, bool rows) {
  std::vector<double> sums(static_cast<size_t>(n), 0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < n; ++o) {
      sums[static_cast<size_t>(rows ? i : o)] += matrix[place(i, o, n)];
    }
  }
  return sums;
}

// One normalisation and its derivative, both from the matrix before it.
Matrix normalised(const Matrix& before, int64_t n, bool rows, double eps) {
  const std::vector<double> sums = sums_of(before, n, rows);
  Matrix after = before;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < n; ++o) {
      after[place(i, o, n)] /= sums[static_cast<size_t>(rows ? i : o)] + eps;
    }
  }
  return after;
}

Matrix back_through(const Matrix& before, const Matrix& grad, int64_t n, bool rows, double eps) {
  const std::vector<double> sums = sums_of(before, n, rows);
  Matrix products = grad;
  for (size_t e = 0; e < products.size(); ++e) products[e] *= before[e];
  const std::vector<double> along = sums_of(products, n, rows);
  Matrix result = grad;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t o = 0; o < n; ++o) {
      const auto line = static_cast<size_t>(rows ? i : o);
      const double divisor = sums[line] + eps;
      result[place(i, o, n)] = (grad[place(i, o, n)] - along[line] / divisor) / divisor;
    }
  }
  return result;
}

}  // namespace

PostGradients post_bwd(const HostTensor& grad_out, const HostTensor& x, const HostTensor& residual,
                       const HostTensor& post_mix, const HostTensor& comb_mix) {
  const Dims& shape = residual.shape();
  const int64_t n = shape[shape.rank - 2], hidden = shape[shape.rank - 1];
  PostGradients result{HostTensor(DType::bf16, x.shape()), HostTensor(DType::bf16, shape),
                       HostTensor(DType::f32, post_mix.shape()),
                       HostTensor(DType::f32, comb_mix.shape())};
  const auto grad = [&](int64_t t, int64_t o, int64_t h) {
    return at(grad_out, (t * n + o) * hidden + h);
  };
  for (int64_t e = 0; e < x.size(); ++e) {
    float chain = 0;
    for (int64_t o = 0; o < n; ++o) {
      chain = std::fma(at(post_mix, e / hidden * n + o), grad(e / hidden, o, e % hidden), chain);
    }
    result.x.set_value(e, static_cast<double>(chain));
  }
  for (int64_t e = 0; e < residual.size(); ++e) {
    const int64_t row = e / hidden;  // t * n + i
    float chain = 0;
    for (int64_t o = 0; o < n; ++o) {
      chain = std::fma(at(comb_mix, row * n + o), grad(row / n, o, e % hidden), chain);
    }
    result.residual.set_value(e, static_cast<double>(chain));
  }
  for (int64_t e = 0; e < post_mix.size(); ++e) {
    const int64_t t = e / n, o = e % n;
    double sum = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      sum += x.value(t * hidden + h) * static_cast<double>(grad(t, o, h));
    }
    result.post_mix.set_value(e, sum);
  }
  for (int64_t e = 0; e < comb_mix.size(); ++e) {
    const int64_t row = e / n, o = e % n;  // t * n + i
    double sum = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      sum += residual.value(row * hidden + h) * static_cast<double>(grad(row / n, o, h));
    }
    result.comb_mix.set_value(e, sum);
  }
  return result;
}

HostTensor sinkhorn_bwd(const HostTensor& grad_out, const HostTensor& x, int64_t repeat,
                        double eps) {
  const int64_t n = x.shape()[x.shape().rank - 1];
  HostTensor grad_x(DType::f32, x.shape());
  for (int64_t first = 0; first < x.size(); first += n * n) {
    Matrix power, grad;
    for (int64_t e = 0; e < n * n; ++e) {
      double top = x.value(first + e / n * n);
      for (int64_t o = 0; o < n; ++o) top = std::fmax(top, x.value(first + e / n * n + o));
      power.push_back(std::exp(x.value(first + e) - top));
      grad.push_back(grad_out.value(first + e));
    }
    const Matrix p = normalised(power, n, /*rows=*/true, 0);
    std::vector<Matrix> before = {p};  // of every step: columns, rows, columns, ...
    for (double& value : before[0]) value += eps;
    const int64_t steps = 2 * repeat - 1;
    for (int64_t step = 0; step + 1 < steps; ++step) {
      before.push_back(normalised(before.back(), n, /*rows=*/step % 2 == 1, eps));
    }
    for (int64_t step = steps - 1; step >= 0; --step) {
      grad = back_through(before[static_cast<size_t>(step)], grad, n, /*rows=*/step % 2 == 1, eps);
    }
    Matrix products = grad;
    for (size_t e = 0; e < products.size(); ++e) products[e] *= p[e];
    const std::vector<double> along = sums_of(products, n, /*rows=*/true);
    for (int64_t e = 0; e < n * n; ++e) {
      const auto i = static_cast<size_t>(e);
      grad_x.set_value(first + e, (grad[i] - along[static_cast<size_t>(e / n)]) * p[i]);
    }
  }
  return grad_x;
}

}  // namespace tessera::reference
