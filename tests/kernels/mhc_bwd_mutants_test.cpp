// The tests of the backward hyper-connection ops are shown to fail: copies of the references with
// one mistake that a kernel could make. The copies without a mistake must pass.

#include <cmath>

#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

enum class PostMutant { none, not_fused, descending };

HostTensors mutated_post(const HostTensors& in, const Params&, PostMutant mutant) {
  const HostTensor& grad_out = in.at("grad_out");
  const int rank = grad_out.shape().rank;
  const int64_t n = grad_out.shape()[rank - 2], hidden = grad_out.shape()[rank - 1];
  const auto grad = [&](int64_t t, int64_t o, int64_t h) {
    return at(grad_out, (t * n + o) * hidden + h);
  };
  // The chain over output streams with weight(o).
  const auto chain = [&](int64_t t, int64_t h, const auto& weight) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t o = mutant == PostMutant::descending ? n - 1 - k : k;
      const float a = weight(o), b = grad(t, o, h);
      sum = mutant == PostMutant::not_fused ? sum + a * b : std::fma(a, b, sum);
    }
    return static_cast<double>(sum);
  };
  const auto dot = [&](const HostTensor& row, int64_t first, int64_t t, int64_t o) {
    double sum = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      sum += row.value(first + h) * static_cast<double>(grad(t, o, h));
    }
    return sum;
  };
  HostTensors out;
  for (const char* name : {"x", "residual", "post_mix", "comb_mix"}) {
    out["grad_" + std::string(name)] = HostTensor(in.at(name).dtype(), in.at(name).shape());
  }
  const int64_t tokens = in.at("post_mix").size() / n;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      out["grad_x"].set_value(
          t * hidden + h, chain(t, h, [&](int64_t o) { return at(in.at("post_mix"), t * n + o); }));
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < hidden; ++h) {
        const auto weight = [&](int64_t o) { return at(in.at("comb_mix"), (t * n + i) * n + o); };
        out["grad_residual"].set_value((t * n + i) * hidden + h, chain(t, h, weight));
      }
      out["grad_post_mix"].set_value(t * n + i, dot(in.at("x"), t * hidden, t, i));
      for (int64_t o = 0; o < n; ++o) {
        out["grad_comb_mix"].set_value((t * n + i) * n + o,
                                       dot(in.at("residual"), (t * n + i) * hidden, t, o));
      }
    }
  }
  return out;
}

enum class SinkhornMutant { none, one_step_less, rows_last, no_softmax, eps_in_softmax, eps_free };

// One division of lines by their sum, with the derivative of each element by each other.
void back(std::vector<double>& grad, const std::vector<double>& before, int64_t n, int64_t stride,
          double eps) {
  for (int64_t line = 0; line < n; ++line) {
    const int64_t begin = stride == 1 ? line * n : line;
    double sum = eps, along = 0;
    for (int64_t k = 0; k < n; ++k) {
      const auto e = static_cast<size_t>(begin + k * stride);
      sum += before[e];
      along += grad[e] * before[e];
    }
    for (int64_t k = 0; k < n; ++k) {
      double& g = grad[static_cast<size_t>(begin + k * stride)];
      g = (g - along / sum) / sum;
    }
  }
}

HostTensors mutated_sinkhorn(const HostTensors& in, const Params& params, SinkhornMutant mutant) {
  const HostTensor& x = in.at("x");
  const int64_t n = x.shape()[x.shape().rank - 1];
  const double eps = std::get<double>(params.at("eps"));
  const int64_t steps = 2 * std::get<int64_t>(params.at("repeat")) - 1 -
                        (mutant == SinkhornMutant::one_step_less ? 1 : 0);
  HostTensor out(DType::f32, x.shape());
  for (int64_t first = 0; first < x.size(); first += n * n) {
    std::vector<double> p, grad;
    for (int64_t e = 0; e < n * n; ++e) {
      double top = -HUGE_VAL, sum = 0;
      for (int64_t o = 0; o < n; ++o) top = std::fmax(top, x.value(first + e / n * n + o));
      for (int64_t o = 0; o < n; ++o) sum += std::exp(x.value(first + e / n * n + o) - top);
      if (mutant == SinkhornMutant::eps_in_softmax) sum += eps;
      p.push_back(std::exp(x.value(first + e) - top) / sum);
      grad.push_back(in.at("grad_out").value(first + e));
    }
    std::vector<std::vector<double>> before = {p};
    for (double& value : before[0]) value += mutant == SinkhornMutant::eps_free ? 0 : eps;
    const auto stride = [&](int64_t step) {
      return (step % 2 == 1) == (mutant != SinkhornMutant::rows_last) ? int64_t{1} : n;
    };
    for (int64_t step = 0; step + 1 < steps; ++step) {
      std::vector<double> next = before.back();
      for (int64_t line = 0; line < n; ++line) {
        const int64_t begin = stride(step) == 1 ? line * n : line;
        double sum = eps;
        for (int64_t k = 0; k < n; ++k) {
          sum += before.back()[static_cast<size_t>(begin + k * stride(step))];
        }
        for (int64_t k = 0; k < n; ++k) {
          next[static_cast<size_t>(begin + k * stride(step))] /= sum;
        }
      }
      before.push_back(next);
    }
    for (int64_t step = steps - 1; step >= 0; --step) {
      back(grad, before[static_cast<size_t>(step)], n, stride(step), eps);
    }
    for (int64_t e = 0; e < n * n; ++e) {
      double along = 0;
      for (int64_t o = 0; o < n; ++o) {
        const auto k = static_cast<size_t>(e / n * n + o);
        along += grad[k] * p[k];
      }
      const auto i = static_cast<size_t>(e);
      const bool whole = mutant != SinkhornMutant::no_softmax;
      out.set_value(first + e, whole ? (grad[i] - along) * p[i] : grad[i]);
    }
  }
  return {{"grad_x", out}};
}

}  // namespace

TEST_CASE("the post_bwd tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("post_bwd", post_bwd_cases(), PostMutant::descending, mutated_post);
}

TEST_CASE("the sinkhorn_bwd tests catch every mutant", "[mutants][mhc]") {
  check_mutants("sinkhorn_bwd", sinkhorn_bwd_cases(), SinkhornMutant::eps_free, mutated_sinkhorn);
}
