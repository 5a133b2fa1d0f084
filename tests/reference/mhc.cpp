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

HostTensor post_fwd(const HostTensor& x, const HostTensor& residual, const HostTensor& post_mix,
                    const HostTensor& comb_mix) {
  const int rank = residual.shape().rank;
  const int64_t n = residual.shape()[rank - 2], hidden = residual.shape()[rank - 1];
  HostTensor out(DType::bf16, residual.shape());
  for (int64_t element = 0; element < out.size(); ++element) {
    const int64_t h = element % hidden, o = element / hidden % n, t = element / hidden / n;
    const auto comb = [&](int64_t i) { return at(comb_mix, (t * n + i) * n + o); };
    const auto stream = [&](int64_t i) { return at(residual, (t * n + i) * hidden + h); };
    float sum = comb(0) * stream(0);
    sum = std::fma(at(post_mix, t * n + o), at(x, t * hidden + h), sum);
    for (int64_t i = 1; i < n; ++i) sum = std::fma(comb(i), stream(i), sum);
    out.set_value(element, static_cast<double>(sum));
  }
  return out;
}

HostTensor expand_to_mhc_fwd(const HostTensor& x, int64_t num_streams) {
  const int rank = x.shape().rank;
  const int64_t hidden = x.shape()[rank - 1];
  HostTensor out(DType::bf16, shape_of(x.shape(), rank - 1, {num_streams, hidden}));
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t h = i % hidden, t = i / hidden / num_streams;
    out.set_bits(i, x.bits(t * hidden + h));
  }
  return out;
}

HostTensor sinkhorn_fwd(const HostTensor& x, int64_t repeat, double eps) {
  const int64_t n = x.shape()[x.shape().rank - 1];
  HostTensor out(DType::f32, x.shape());
  std::vector<double> matrix(static_cast<size_t>(n * n));
  const auto element = [&](int64_t i, int64_t o) -> double& {
    return matrix[static_cast<size_t>(i * n + o)];
  };
  const auto divide_rows = [&](double added) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = added;
      for (int64_t o = 0; o < n; ++o) sum += element(i, o);
      for (int64_t o = 0; o < n; ++o) element(i, o) /= sum;
    }
  };
  const auto divide_columns = [&] {
    for (int64_t o = 0; o < n; ++o) {
      double sum = eps;
      for (int64_t i = 0; i < n; ++i) sum += element(i, o);
      for (int64_t i = 0; i < n; ++i) element(i, o) /= sum;
    }
  };
  for (int64_t first = 0; first < x.size(); first += n * n) {
    for (int64_t i = 0; i < n; ++i) {
      double top = x.value(first + i * n);
      for (int64_t o = 0; o < n; ++o) top = std::fmax(top, x.value(first + i * n + o));
      for (int64_t o = 0; o < n; ++o) element(i, o) = std::exp(x.value(first + i * n + o) - top);
    }
    divide_rows(0);
    for (double& value : matrix) value += eps;
    divide_columns();
    for (int64_t round = 1; round < repeat; ++round) {
      divide_rows(eps);
      divide_columns();
    }
    for (int64_t e = 0; e < n * n; ++e) out.set_value(first + e, matrix[static_cast<size_t>(e)]);
  }
  return out;
}

SplitMixes pre_split_mixes_fwd(const HostTensor& input_mixes, const HostTensor& scale,
                               const HostTensor& base, double post_mult, double pre_eps) {
  const Dims& shape = input_mixes.shape();
  const int64_t num_entries = shape[shape.rank - 1];
  int64_t n = 1;
  while (n * (n + 2) < num_entries) ++n;
  SplitMixes result{HostTensor(DType::f32, shape_of(shape, shape.rank - 1, {n})),
                    HostTensor(DType::f32, shape_of(shape, shape.rank - 1, {n})),
                    HostTensor(DType::f32, shape_of(shape, shape.rank - 1, {n, n}))};
  for (int64_t element = 0; element < input_mixes.size(); ++element) {
    const int64_t t = element / num_entries, j = element % num_entries;
    const double z =
        input_mixes.value(element) * scale.value(std::min<int64_t>(j / n, 2)) + base.value(j);
    const double sigmoid = 1 / (1 + std::exp(-z));
    if (j < n) {
      result.pre_mix.set_value(t * n + j, sigmoid + pre_eps);
    } else if (j < 2 * n) {
      result.post_mix.set_value(t * n + j - n, sigmoid * post_mult);
    } else {
      result.comb_logits.set_value(t * n * n + j - 2 * n, z);
    }
  }
  return result;
}

}  // namespace tessera::reference
