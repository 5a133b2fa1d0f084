// The tests of expand_to_mhc_fwd, pre_split_mixes_fwd, norm_fn_fwd and pre_big_fuse are shown to
// fail: copies of the references with one mistake that a kernel could make. The copies without a
// mistake must pass.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/mhc.h"
#include "tests/reference/mhc_pre.h"
#include "tests/reference/numeric.h"
#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

template <class T>
T param(const Params& params, const char* name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
}

enum class SplitMutant { none, no_eps, eps_inside, no_mult, one_scale, no_base };

HostTensors mutated_split(const HostTensors& in, const Params& params, SplitMutant mutant) {
  const HostTensor& mixes = in.at("input_mixes");
  double eps = std::get<double>(params.at("pre_eps"));
  const auto mult = std::get<double>(params.at("post_mult_value"));
  HostTensors out;
  {
    reference::SplitMixes shapes =
        reference::pre_split_mixes_fwd(mixes, in.at("scale"), in.at("base"), mult, eps);
    out = {{"pre_mix", shapes.pre_mix},
           {"post_mix", shapes.post_mix},
           {"comb_logits", shapes.comb_logits}};
  }
  const int64_t n = out["pre_mix"].shape()[out["pre_mix"].shape().rank - 1];
  const int64_t entries = n * (n + 2);
  for (int64_t e = 0; e < mixes.size(); ++e) {
    const int64_t t = e / entries, j = e % entries;
    const int64_t part = mutant == SplitMutant::one_scale ? 0 : std::min<int64_t>(j / n, 2);
    double z = mixes.value(e) * in.at("scale").value(part);
    if (mutant != SplitMutant::no_base) z += in.at("base").value(j);
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    if (j < 2 * n) {
      const bool pre = j < n;
      double value = sigmoid(z) * (mutant == SplitMutant::no_mult ? 1 : mult);
      if (pre) value = mutant == SplitMutant::eps_inside ? sigmoid(z + eps) : sigmoid(z) + eps;
      if (pre && mutant == SplitMutant::no_eps) value = sigmoid(z);
      out[pre ? "pre_mix" : "post_mix"].set_value(t * n + j % n, value);
    } else {
      out["comb_logits"].set_value(t * n * n + j - 2 * n, z);
    }
  }
  return out;
}

enum class NormMutant {
  none,
  no_rounding,
  truncates,
  ties_to_even,
  weight_later,
  no_weight,
  eps_outside,
  one_stream
};

float mutated_tf32(float value, NormMutant mutant) {
  if (mutant == NormMutant::no_rounding) return value;
  const uint32_t bits = reference::bits_of(value);
  if (mutant == NormMutant::truncates && std::isfinite(value)) {
    return reference::float_of(bits & 0xFFFFE000U);
  }
  if (mutant == NormMutant::ties_to_even && std::isfinite(value)) {
    return reference::float_of((bits + 0xFFFU + (bits >> 13 & 1U)) & 0xFFFFE000U);
  }
  return reference::round_to_tf32(value);
}

HostTensors mutated_norm(const HostTensors& in, const Params& params, NormMutant mutant) {
  const HostTensor& residual = in.at("residual");
  const HostTensor& fn = in.at("fn");
  const int64_t rank = residual.shape().rank, hidden = residual.shape()[static_cast<int>(rank) - 1];
  const int64_t m = fn.shape()[0], width = fn.shape()[1];
  const auto eps = param<double>(params, "norm_eps", 1e-6);
  const auto weight = in.find("norm_weight");
  std::vector<double> rounded;
  for (int64_t e = 0; e < fn.size(); ++e) {
    float value = static_cast<float>(fn.value(e)), factor = 1;
    if (weight != in.end() && mutant != NormMutant::no_weight) {
      factor = static_cast<float>(weight->second.value(e % width));
    }
    const bool later = mutant == NormMutant::weight_later;
    value = later ? mutated_tf32(value, mutant) * factor : mutated_tf32(value * factor, mutant);
    rounded.push_back(static_cast<double>(value));
  }
  reference::NormFnResult result = reference::norm_fn_fwd(residual, fn, nullptr, eps);
  for (int64_t t = 0; t < result.sqrsum.size(); ++t) {
    double squares = 0;
    for (int64_t k = 0; k < width; ++k) squares += std::pow(residual.value(t * width + k), 2);
    result.sqrsum.set_value(t, squares);
    const auto columns = static_cast<double>(mutant == NormMutant::one_stream ? hidden : width);
    const double root = mutant == NormMutant::eps_outside ? std::sqrt(squares / columns) + eps
                                                          : std::sqrt(squares / columns + eps);
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k) {
        sum += rounded[static_cast<size_t>(j * width + k)] * residual.value(t * width + k);
      }
      result.out_mul.set_value(t * m + j, sum);
      result.out.set_value(t * m + j, width == 0 ? 0 : sum / root);
    }
  }
  HostTensors out = {{"out", result.out}};
  if (param<bool>(params, "save_for_backward", true)) {
    out["out_mul"] = result.out_mul;
    out["sqrsum"] = result.sqrsum;
  }
  return out;
}

/// Those with few tokens: a mistake of these kinds shows in any of them.
std::vector<OpCase> small(std::vector<OpCase> cases) {
  std::erase_if(cases, [](const OpCase& test) {
    return test.inputs.at("residual").shape()[0] > 200 || test.inputs.at("residual").size() > 40000;
  });
  return cases;
}

}  // namespace

TEST_CASE("the expand_to_mhc_fwd tests catch NaN bits that go through f32", "[mutants][mhc]") {
  CHECK(is_caught("expand_to_mhc_fwd", expand_to_mhc_fwd_cases(),
                  spoiled("expand_to_mhc_fwd", [](const HostTensors&, HostTensors& outputs) {
                    HostTensor& out = outputs.at("out");
                    for (int64_t e = 0; e < out.size(); ++e) out.set_value(e, out.value(e));
                  })));
}

TEST_CASE("the pre_split_mixes_fwd tests catch every mutant", "[mutants][mhc]") {
  check_mutants("pre_split_mixes_fwd", pre_split_mixes_fwd_cases(), SplitMutant::no_base,
                mutated_split);
}

TEST_CASE("the norm_fn_fwd tests catch every mutant", "[mutants][mhc][slow]") {
  check_mutants("norm_fn_fwd", small(norm_fn_fwd_cases()), NormMutant::one_stream, mutated_norm);
}

TEST_CASE("the pre_big_fuse tests catch every mutant", "[mutants][mhc][slow]") {
  // Each step with the parameter of another, or left out.
  enum class Mutant { none, one_round_more, norm_eps, pre_eps, sinkhorn_eps, no_mult, no_weight };
  const auto mutated = [](HostTensors in, Params params, Mutant mutant) {
    if (mutant == Mutant::no_weight) in.erase("norm_weight");
    if (mutant == Mutant::no_mult) params["post_mult_value"] = 1.0;
    if (mutant == Mutant::norm_eps) params["norm_eps"] = 1e-6;
    if (mutant == Mutant::pre_eps) params["pre_eps"] = 1e-6;
    if (mutant == Mutant::sinkhorn_eps) params["sinkhorn_eps"] = 1e-6;
    if (mutant == Mutant::one_round_more) {
      params["sinkhorn_repeat"] = param<int64_t>(params, "sinkhorn_repeat", 10) + 1;
    }
    return reference::runner("pre_big_fuse")(in, params);
  };
  check_mutants("pre_big_fuse", small(pre_big_fuse_cases()), Mutant::no_weight, mutated);
}
