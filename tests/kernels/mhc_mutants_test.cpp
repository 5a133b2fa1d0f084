// The tests of the hyper-connection ops are shown to fail: copies of the references with one
// mistake that a kernel could make. The copies without a mistake must pass.

#include <cmath>

#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

enum class ChainMutant { none, not_fused, descending, rounds_sums, output_first };

HostTensors mutated_post(const HostTensors& in, const Params&, ChainMutant mutant) {
  const HostTensor& residual = in.at("residual");
  const int rank = residual.shape().rank;
  const int64_t n = residual.shape()[rank - 2], hidden = residual.shape()[rank - 1];
  const auto add = [&](float a, float b, float sum) {
    sum = mutant == ChainMutant::not_fused ? sum + a * b : std::fma(a, b, sum);
    if (mutant != ChainMutant::rounds_sums) return sum;
    HostTensor rounded(DType::bf16, {1});
    rounded.set_value(0, static_cast<double>(sum));
    return at(rounded, 0);
  };
  HostTensor out(DType::bf16, residual.shape());
  for (int64_t e = 0; e < out.size(); ++e) {
    const int64_t h = e % hidden, o = e / hidden % n, t = e / hidden / n;
    const auto comb = [&](int64_t i) { return at(in.at("comb_mix"), (t * n + i) * n + o); };
    const auto stream = [&](int64_t i) { return at(residual, (t * n + i) * hidden + h); };
    const float post = at(in.at("post_mix"), t * n + o), x = at(in.at("x"), t * hidden + h);
    float sum = mutant == ChainMutant::output_first ? add(comb(0), stream(0), post * x)
                                                    : add(post, x, comb(0) * stream(0));
    for (int64_t i = 1; i < n; ++i) {
      const int64_t next = mutant == ChainMutant::descending ? n - i : i;
      sum = add(comb(next), stream(next), sum);
    }
    out.set_value(e, static_cast<double>(sum));
  }
  return {{"out", out}};
}

HostTensors mutated_apply(const HostTensors& in, const Params&, ChainMutant mutant) {
  const HostTensor& x = in.at("x");
  const int rank = x.shape().rank;
  const int64_t n = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
  Dims shape = in.at("mix").shape();
  shape[rank - 2] = hidden;
  HostTensor out(DType::bf16, shape);
  for (int64_t e = 0; e < out.size(); ++e) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t row = e / hidden * n + (mutant == ChainMutant::descending ? n - 1 - k : k);
      const float a = at(in.at("mix"), row), b = at(x, row * hidden + e % hidden);
      sum = mutant == ChainMutant::not_fused ? sum + a * b : std::fma(a, b, sum);
    }
    out.set_value(e, static_cast<double>(sum));
  }
  return {{"out", out}};
}

enum class SinkhornMutant { none, rows_first, one_more, one_less, no_eps, eps_divides, no_maximum };

HostTensors mutated_sinkhorn(const HostTensors& in, const Params& params, SinkhornMutant mutant) {
  const HostTensor& x = in.at("x");
  const int64_t n = x.shape()[x.shape().rank - 1];
  const double eps = std::get<double>(params.at("eps"));
  int64_t repeat = std::get<int64_t>(params.at("repeat"));
  if (mutant == SinkhornMutant::one_more) ++repeat;
  if (mutant == SinkhornMutant::one_less) --repeat;
  HostTensor out(DType::f32, x.shape());
  for (int64_t first = 0; first < x.size(); first += n * n) {
    std::vector<double> m(static_cast<size_t>(n * n));
    const auto divide = [&](int64_t stride, double added) {
      for (int64_t line = 0; line < n; ++line) {
        const int64_t begin = stride == 1 ? line * n : line;
        double sum = added;
        for (int64_t k = 0; k < n; ++k) sum += m[static_cast<size_t>(begin + k * stride)];
        for (int64_t k = 0; k < n; ++k) m[static_cast<size_t>(begin + k * stride)] /= sum;
      }
    };
    for (int64_t i = 0; i < n * n; ++i) {
      double top = -HUGE_VAL;
      for (int64_t o = 0; o < n; ++o) top = std::fmax(top, x.value(first + i / n * n + o));
      if (mutant == SinkhornMutant::no_maximum) top = 0;
      // The exponential overflows as it would in f32.
      const double power = std::exp(x.value(first + i) - top);
      m[static_cast<size_t>(i)] = static_cast<double>(static_cast<float>(power));
    }
    divide(1, mutant == SinkhornMutant::eps_divides ? eps : 0);
    const bool adds = mutant != SinkhornMutant::no_eps && mutant != SinkhornMutant::eps_divides;
    for (double& value : m) value += adds ? eps : 0;
    if (mutant != SinkhornMutant::rows_first) divide(n, eps);
    for (int64_t round = 1; round < repeat; ++round) {
      divide(1, eps);
      divide(n, eps);
    }
    for (int64_t i = 0; i < n * n; ++i) out.set_value(first + i, m[static_cast<size_t>(i)]);
  }
  return {{"out", out}};
}

}  // namespace

TEST_CASE("the post_fwd tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("post_fwd", post_fwd_cases(), ChainMutant::output_first, mutated_post);
}

TEST_CASE("the pre_apply_mix_fwd tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("pre_apply_mix_fwd", pre_apply_mix_fwd_cases(), ChainMutant::descending,
                mutated_apply);
}

TEST_CASE("the sinkhorn_fwd tests catch every mutant", "[mutants][mhc]") {
  check_mutants("sinkhorn_fwd", sinkhorn_fwd_cases(), SinkhornMutant::no_maximum, mutated_sinkhorn);
}
