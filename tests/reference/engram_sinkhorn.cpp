#include "tests/reference/engram_sinkhorn.h"

#include <cmath>
#include <vector>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

void set(HostTensor& tensor, int64_t element, float value) {
  tensor.set_bits(element, encode(tensor.dtype(), static_cast<double>(value)));
}

/// (row_scale[i] matrix[i, d]) col_scale[d] of one row.
std::vector<float> scaled_row(const HostTensors& tensors, int64_t row) {
  const HostTensor& matrix = tensors.at("matrix");
  const int64_t columns = matrix.shape()[1];
  std::vector<float> x;
  for (int64_t d = 0; d < columns; ++d) {
    const float by_row = number(tensors.at("row_scale"), row) * number(matrix, row * columns + d);
    x.push_back(by_row * number(tensors.at("col_scale"), d));
  }
  return x;
}

double number_of(const Params& params, const std::string& name) {
  return std::get<double>(params.at(name));
}

}  // namespace

HostTensors engram_sinkhorn_momentum(const HostTensors& tensors, double beta1, bool nesterov) {
  const HostTensor& grad = tensors.at("grad");
  HostTensor momentum = tensors.at("momentum"), out(DType::f32, grad.shape());
  const auto beta = static_cast<float>(beta1), rest = static_cast<float>(1 - beta1);
  for (int64_t i = 0; i < grad.size(); ++i) {
    const float g = number(grad, i), weighted = rest * g;
    const float m = std::fma(number(momentum, i), beta, weighted);
    const float kept = beta * m;
    set(out, i, nesterov ? std::fma(g, rest, kept) : m);
    set(momentum, i, m);
  }
  return {{"momentum", std::move(momentum)}, {"out", std::move(out)}};
}

HostTensors engram_sinkhorn_step(const HostTensors& tensors, double eps) {
  constexpr int64_t kRuns = 264;
  const HostTensor& matrix = tensors.at("matrix");
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  const int64_t of_run = (rows + kRuns - 1) / kRuns;
  HostTensor row_scale = tensors.at("row_scale"), row_norm(DType::f32, {rows});
  HostTensor col_sumsq(DType::f32, {columns});
  const auto d = static_cast<size_t>(columns);
  std::vector<float> run(d), total(d);
  for (int64_t i = 0; i < rows; ++i) {
    const std::vector<float> x = scaled_row(tensors, i);
    const float norm = std::sqrt(lane_sum(x, x));
    const float v = 1.0F / (norm + static_cast<float>(eps));
    set(row_norm, i, norm);
    set(row_scale, i, number(row_scale, i) * v);
    for (size_t c = 0; c < d; ++c) {
      const float normed = x[c] * v;
      run[c] = std::fma(normed, normed, run[c]);
    }
    if ((i + 1) % of_run != 0 && i + 1 != rows) continue;
    for (size_t c = 0; c < d; ++c) total[c] = total[c] + run[c];
    run.assign(d, 0.0F);
  }
  for (int64_t c = 0; c < columns; ++c) set(col_sumsq, c, total[static_cast<size_t>(c)]);
  return {{"row_scale", std::move(row_scale)},
          {"row_norm", std::move(row_norm)},
          {"col_sumsq", std::move(col_sumsq)}};
}

HostTensors engram_sinkhorn_finalize(const HostTensors& tensors, double eps, double alpha) {
  const HostTensor& matrix = tensors.at("matrix");
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HostTensor out(DType::f32, matrix.shape());
  for (int64_t i = 0; i < rows; ++i) {
    const std::vector<float> x = scaled_row(tensors, i);
    const float norm = std::sqrt(lane_sum(x, x));
    const float factor = static_cast<float>(alpha) / (norm + static_cast<float>(eps));
    for (int64_t d = 0; d < columns; ++d) {
      set(out, i * columns + d, x[static_cast<size_t>(d)] * factor);
    }
  }
  return {{"out", std::move(out)}};
}

Runner engram_sinkhorn_runner(const std::string& op) {
  if (op == "engram_sinkhorn_momentum") {
    return [](const HostTensors& in, const Params& params) {
      const auto nesterov = params.find("nesterov");
      return engram_sinkhorn_momentum(in, number_of(params, "beta1"),
                                      nesterov == params.end() || std::get<bool>(nesterov->second));
    };
  }
  if (op == "engram_sinkhorn_step") {
    return [](const HostTensors& in, const Params& params) {
      return engram_sinkhorn_step(in, number_of(params, "eps"));
    };
  }
  if (op == "engram_sinkhorn_finalize") {
    return [](const HostTensors& in, const Params& params) {
      return engram_sinkhorn_finalize(in, number_of(params, "eps"), number_of(params, "alpha"));
    };
  }
  return nullptr;
}

}  // namespace tessera::reference
