// Gradients of the mixes of a sub-layer, on the executor: the reference, the slope of the forward op,
// what bad calls are told, and mutants that the cases catch.

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensor some(Dims shape, uint64_t seed = 1) {
  return random_tensor(DType::f32, shape, Values::normal, seed);
}

HostTensors inputs_of(int64_t tokens, int64_t n) {
  return {{"grad_pre_mix", some({tokens, n}, 2)},
          {"grad_post_mix", some({tokens, n}, 3)},
          {"grad_comb_logits", some({tokens, n, n}, 4)},
          {"input_mixes", some({tokens, n * (n + 2)}, 5)},
          {"post_mix", some({tokens, n}, 6)},
          {"scale", some({3}, 7)},
          {"base", some({n * (n + 2)}, 8)}};
}

enum class Mutant { none, no_slope, no_mult, one_scale, no_base, sums_z, overwrites };

HostTensors mutated(const HostTensors& in, const Params& params, Mutant mutant) {
  const HostTensor& mixes = in.at("input_mixes");
  const double mult =
      mutant == Mutant::no_mult ? 1 : std::get<double>(params.at("post_mult_value"));
  const int64_t entries = in.at("base").size();
  const int64_t n = in.at("post_mix").shape()[in.at("post_mix").shape().rank - 1];
  HostTensors out = {{"grad_input_mixes", HostTensor(DType::f32, mixes.shape())}};
  std::vector<double> sums(static_cast<size_t>(entries + 3), 0);  // of the bases, then the scales
  for (int64_t e = 0; e < mixes.size(); ++e) {
    const int64_t t = e / entries, j = e % entries;
    const int64_t part = mutant == Mutant::one_scale ? 0 : std::min<int64_t>(j / n, 2);
    const double base = mutant == Mutant::no_base ? 0 : in.at("base").value(j);
    const double z = mixes.value(e) * in.at("scale").value(part) + base;
    double g = 0;
    if (j < n) {
      const double p = 1 / (1 + std::exp(-z));
      g = in.at("grad_pre_mix").value(t * n + j) * p * (mutant == Mutant::no_slope ? 1 : 1 - p);
    } else if (j < 2 * n) {
      const double post = in.at("post_mix").value(t * n + j - n);
      g = in.at("grad_post_mix").value(t * n + j - n) * post * (1 - post / mult);
    } else {
      g = in.at("grad_comb_logits").value(t * n * n + j - 2 * n);
    }
    out["grad_input_mixes"].set_value(e, g * in.at("scale").value(part));
    sums[static_cast<size_t>(j)] += g;
    sums[static_cast<size_t>(entries + part)] +=
        g * (mutant == Mutant::sums_z ? z : mixes.value(e));
  }
  for (const auto& [name, first, count] : {std::tuple("grad_scale", entries, int64_t{3}),
                                           std::tuple("grad_base", int64_t{0}, entries)}) {
    const auto given = in.find(name);
    const bool adds = given != in.end() && mutant != Mutant::overwrites;
    HostTensor grad(DType::f32, {count});
    for (int64_t i = 0; i < count; ++i) {
      grad.set_value(i, sums[static_cast<size_t>(first + i)] + (adds ? given->second.value(i) : 0));
    }
    out[name] = grad;
  }
  return out;
}

}  // namespace

TEST_CASE("pre_split_mixes_bwd equals its reference on the executor", "[pre_split_mixes_bwd]") {
  const auto cases = pre_split_mixes_bwd_cases();
  const CaseReport report =
      run_cases("pre_split_mixes_bwd", cases, op_runner("pre_split_mixes_bwd", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() == 1);
}

TEST_CASE("pre_split_mixes_bwd is the slope of pre_split_mixes_fwd", "[pre_split_mixes_bwd]") {
  const Params forward = {{"post_mult_value", 2.0}, {"pre_eps", 0.25}};
  HostTensors inputs = inputs_of(5, 3);
  const auto outputs_for = [&](const std::string& input, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[input] = tensor;
    return reference::runner("pre_split_mixes_fwd")(changed, forward);
  };
  const auto loss = [&](const std::string& input, int64_t e, double value) {
    HostTensor changed = inputs.at(input);
    changed.set_value(e, value);
    double sum = 0;
    for (const auto& [name, out] : outputs_for(input, changed)) {
      const HostTensor& grad = inputs.at("grad_" + name);
      for (int64_t o = 0; o < out.size(); ++o) sum += out.value(o) * grad.value(o);
    }
    return sum;
  };
  inputs["post_mix"] = outputs_for("scale", inputs["scale"]).at("post_mix");
  const HostTensors grads =
      reference::runner("pre_split_mixes_bwd")(inputs, {{"post_mult_value", 2.0}});
  for (const char* input : {"input_mixes", "scale", "base"}) {
    for (int64_t e = 0; e < inputs.at(input).size(); ++e) {
      const double at = inputs.at(input).value(e);
      const double slope = (loss(input, e, at + 0x1p-7) - loss(input, e, at - 0x1p-7)) / 0x1p-6;
      CAPTURE(input, e, slope);
      CHECK(std::abs(slope - grads.at("grad_" + std::string(input)).value(e)) < 5e-4);
    }
  }
}

TEST_CASE("pre_split_mixes_bwd without tokens leaves what it adds to", "[pre_split_mixes_bwd]") {
  HostTensors inputs = inputs_of(0, 4);
  const auto run = op_runner("pre_split_mixes_bwd", Device::cpu());
  const HostTensors fresh = run(inputs, {});
  for (int64_t i = 0; i < 3; ++i) CHECK(fresh.at("grad_scale").bits(i) == 0);
  for (int64_t i = 0; i < 24; ++i) CHECK(fresh.at("grad_base").bits(i) == 0);
  inputs["grad_scale"] = some({3}, 2);
  inputs["grad_scale"].set_value(0, -0.0);
  inputs["grad_base"] = some({24}, 3);
  const HostTensors same = run(inputs, {});
  CHECK_THAT(same.at("grad_scale"), EqualsBits(inputs["grad_scale"]));
  CHECK_THAT(same.at("grad_base"), EqualsBits(inputs["grad_base"]));
}

TEST_CASE("pre_split_mixes_bwd explains wrong arguments", "[pre_split_mixes_bwd][errors]") {
  HostTensors inputs = inputs_of(6, 4);
  const auto told = [&](const std::string& name, const HostTensor& tensor, Params params = {}) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("pre_split_mixes_bwd", changed, params);
  };
  CHECK(told("scale", inputs["scale"]) == "no error");
  CHECK(told("scale", inputs["scale"], {{"post_mult_value", 0.0}}) ==
        "tessera: pre_split_mixes_bwd: parameter 'post_mult_value' is out of range\n"
        "  expected  post_mult_value != 0\n"
        "  got       post_mult_value = 0");
  CHECK(told("grad_post_mix", some({6, 3})) ==
        "tessera: pre_split_mixes_bwd: argument 'grad_post_mix' has the wrong shape\n"
        "  expected  f32[6, 4]   (T = 6 from grad_pre_mix dim 0; n = 4 from grad_pre_mix dim 1)\n"
        "  got       f32[6, 3] on cpu");
  CHECK(told("input_mixes", some({6, 25})) ==
        "tessera: pre_split_mixes_bwd: argument 'input_mixes' has the wrong number of columns\n"
        "  expected  M = n*(n+2)\n"
        "  got       M = 25 from input_mixes dim 1, n = 4 from grad_pre_mix dim 1");
  CHECK(told("grad_base", some({23})) ==
        "tessera: pre_split_mixes_bwd: argument 'grad_base' has the wrong shape\n"
        "  expected  f32[24]   (M = 24 from input_mixes dim 1)\n"
        "  got       f32[23] on cpu");
  CHECK(told("grad_scale", HostTensor(DType::f32, {3}, {2})) ==
        "tessera: pre_split_mixes_bwd: argument 'grad_scale' has the wrong strides\n"
        "  expected  row-major strides [1]\n"
        "  got       f32[3], strides [2] on cpu");
  inputs = inputs_of(6, 17);
  CHECK(told("scale", inputs["scale"]) ==
        "tessera: pre_split_mixes_bwd: argument 'grad_pre_mix': so many streams are not "
        "supported\n"
        "  expected  n <= 16\n"
        "  got       n = 17 from grad_pre_mix dim 1");
  inputs = inputs_of(6, 0);
  CHECK(told("scale", inputs["scale"]) ==
        "tessera: pre_split_mixes_bwd: argument 'grad_pre_mix': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from grad_pre_mix dim 1");
}

TEST_CASE("the pre_split_mixes_bwd tests catch every mutant", "[mutants][mhc]") {
  check_mutants("pre_split_mixes_bwd", pre_split_mixes_bwd_cases(), Mutant::overwrites, mutated);
}
