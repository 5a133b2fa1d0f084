// The weights of the residual streams that the head reads and their gradients, on the executor: the
// references, the slope of the forward op, what bad calls are told, and mutants that the cases catch.

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

}  // namespace

TEST_CASE("head_compute_mix_fwd equals its reference on the executor", "[head_compute_mix_fwd]") {
  const auto cases = head_compute_mix_fwd_cases();
  const CaseReport report =
      run_cases("head_compute_mix_fwd", cases, op_runner("head_compute_mix_fwd", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("head_compute_mix_fwd gives the pre_mix of pre_split_mixes_fwd bit for bit",
          "[head_compute_mix_fwd]") {
  const HostTensor mixes = some({37, 24}), scale = some({3}, 2), base = some({24}, 3);
  HostTensor input_mix(DType::f32, {37, 4}, {24, 1});
  HostTensor head_scale(DType::f32, {1}), head_base(DType::f32, {4});
  head_scale.set_bits(0, scale.bits(0));
  for (int64_t i = 0; i < 4; ++i) head_base.set_bits(i, base.bits(i));
  for (int64_t e = 0; e < input_mix.size(); ++e) {
    input_mix.set_bits(e, mixes.bits(e / 4 * 24 + e % 4));
  }
  const HostTensors split = op_runner("pre_split_mixes_fwd", Device::cpu())(
      {{"input_mixes", mixes}, {"scale", scale}, {"base", base}}, {});
  const HostTensors head = op_runner("head_compute_mix_fwd", Device::cpu())(
      {{"input_mix", input_mix}, {"scale", head_scale}, {"base", head_base}}, {});
  CHECK_THAT(head.at("out"), EqualsBits(split.at("pre_mix")));
}

TEST_CASE("head_compute_mix_fwd explains wrong arguments", "[head_compute_mix_fwd][errors]") {
  const HostTensor mix = some({6, 4}), scale = some({1}), base = some({4});
  const auto told = [](const HostTensor& input_mix, const HostTensor& by, const HostTensor& to) {
    return outputs_error("head_compute_mix_fwd",
                         {{"input_mix", input_mix}, {"scale", by}, {"base", to}}, {});
  };
  CHECK(told(mix, scale, base) == "no error");
  CHECK(told(HostTensor(DType::f32, {6, 4}, {24, 1}), scale, base) == "no error");
  CHECK(told(HostTensor(DType::f32, {6, 4}, {8, 2}), scale, base) ==
        "tessera: head_compute_mix_fwd: argument 'input_mix' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       f32[6, 4], strides [8, 2] on cpu");
  CHECK(told(mix, some({3}), base) ==
        "tessera: head_compute_mix_fwd: argument 'scale' has the wrong shape\n"
        "  expected  f32[1]\n"
        "  got       f32[3] on cpu");
  CHECK(told(mix, scale, some({24})) ==
        "tessera: head_compute_mix_fwd: argument 'base' has the wrong shape\n"
        "  expected  f32[4]   (n = 4 from input_mix dim 1)\n"
        "  got       f32[24] on cpu");
  CHECK(told(some({6, 0}), scale, some({0})) ==
        "tessera: head_compute_mix_fwd: argument 'input_mix': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from input_mix dim 1");
  CHECK(told(some({2, 1025}), scale, some({1025})) ==
        "tessera: head_compute_mix_fwd: argument 'input_mix': so many streams are not supported\n"
        "  expected  n <= 1024\n"
        "  got       n = 1025 from input_mix dim 1");
}

TEST_CASE("the head_compute_mix_fwd tests catch every mutant", "[mutants][mhc]") {
  enum class Mutant { none, no_eps, eps_inside, no_base, no_scale, falls };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor &mix = in.at("input_mix"), &base = in.at("base");
    const double eps = std::get<double>(params.at("pre_eps"));
    HostTensor out(DType::f32, mix.shape());
    for (int64_t e = 0; e < out.size(); ++e) {
      double z = mix.value(e) * (mutant == Mutant::no_scale ? 1 : in.at("scale").value(0));
      if (mutant != Mutant::no_base) z += base.value(e % base.size());
      if (mutant == Mutant::eps_inside) z += eps;
      const double weight = 1 / (1 + std::exp(mutant == Mutant::falls ? z : -z));
      const bool adds = mutant != Mutant::no_eps && mutant != Mutant::eps_inside;
      out.set_value(e, weight + (adds ? eps : 0));
    }
    return HostTensors{{"out", out}};
  };
  check_mutants("head_compute_mix_fwd", head_compute_mix_fwd_cases(), Mutant::falls, mutated);
}

TEST_CASE("head_compute_mix_bwd equals its reference on the executor", "[head_compute_mix_bwd]") {
  const auto cases = head_compute_mix_bwd_cases();
  const CaseReport report =
      run_cases("head_compute_mix_bwd", cases, op_runner("head_compute_mix_bwd", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() == 1);
}

TEST_CASE("head_compute_mix_bwd is the slope of head_compute_mix_fwd", "[head_compute_mix_bwd]") {
  const HostTensors inputs = {
      {"input_mix", some({5, 3}, 2)}, {"scale", some({1}, 3)}, {"base", some({3}, 4)}};
  const HostTensor grad_out = some({5, 3}, 5);
  HostTensors with_grad = inputs;
  with_grad["grad_out"] = grad_out;
  const HostTensors grads = reference::runner("head_compute_mix_bwd")(with_grad, {});
  const auto loss = [&](const std::string& input, int64_t e, double value) {
    HostTensors changed = inputs;
    changed.at(input).set_value(e, value);
    const HostTensor out = reference::runner("head_compute_mix_fwd")(changed, {}).at("out");
    double sum = 0;
    for (int64_t o = 0; o < out.size(); ++o) sum += out.value(o) * grad_out.value(o);
    return sum;
  };
  for (const auto& [input, tensor] : inputs) {
    for (int64_t e = 0; e < tensor.size(); ++e) {
      const double at = tensor.value(e);
      const double slope = (loss(input, e, at + 0x1p-7) - loss(input, e, at - 0x1p-7)) / 0x1p-6;
      CAPTURE(input, e, slope);
      CHECK(std::abs(slope - grads.at("grad_" + input).value(e)) < 2e-4);
    }
  }
}

TEST_CASE("head_compute_mix_bwd without tokens leaves what it adds to", "[head_compute_mix_bwd]") {
  HostTensors inputs = {{"grad_out", some({0, 4})},
                        {"input_mix", some({0, 4})},
                        {"scale", some({1})},
                        {"base", some({4})}};
  const auto run = op_runner("head_compute_mix_bwd", Device::cpu());
  const HostTensors fresh = run(inputs, {});
  CHECK(fresh.at("grad_scale").bits(0) == 0);
  for (int64_t i = 0; i < 4; ++i) CHECK(fresh.at("grad_base").bits(i) == 0);
  inputs["grad_scale"] = some({1}, 2);
  inputs["grad_scale"].set_value(0, -0.0);
  inputs["grad_base"] = some({4}, 3);
  const HostTensors same = run(inputs, {});
  CHECK_THAT(same.at("grad_scale"), EqualsBits(inputs["grad_scale"]));
  CHECK_THAT(same.at("grad_base"), EqualsBits(inputs["grad_base"]));
}

TEST_CASE("head_compute_mix_bwd explains wrong arguments", "[head_compute_mix_bwd][errors]") {
  HostTensors inputs = {{"grad_out", some({6, 4})},
                        {"input_mix", some({6, 4})},
                        {"scale", some({1})},
                        {"base", some({4})}};
  const auto told = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("head_compute_mix_bwd", changed, {});
  };
  CHECK(told("base", inputs["base"]) == "no error");
  CHECK(told("input_mix", HostTensor(DType::f32, {6, 4}, {24, 1})) == "no error");
  CHECK(told("grad_out", HostTensor(DType::f32, {6, 4}, {24, 1})) ==
        "tessera: head_compute_mix_bwd: argument 'grad_out' has the wrong strides\n"
        "  expected  row-major strides [4, 1]\n"
        "  got       f32[6, 4], strides [24, 1] on cpu");
  CHECK(told("grad_base", some({5})) ==
        "tessera: head_compute_mix_bwd: argument 'grad_base' has the wrong shape\n"
        "  expected  f32[4]   (n = 4 from grad_out dim 1)\n"
        "  got       f32[5] on cpu");
  CHECK(told("grad_scale", random_tensor(DType::bf16, {1}, Values::normal, 1)) ==
        "tessera: head_compute_mix_bwd: argument 'grad_scale' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[1] on cpu");
  inputs = {{"grad_out", some({6, 257})}, {"input_mix", some({6, 257})}, {"scale", some({1})}};
  CHECK(told("base", some({257})) ==
        "tessera: head_compute_mix_bwd: argument 'grad_out': so many streams are not supported\n"
        "  expected  n <= 256\n"
        "  got       n = 257 from grad_out dim 1");
  inputs = {{"grad_out", some({6, 0})}, {"input_mix", some({6, 0})}, {"scale", some({1})}};
  CHECK(told("base", some({0})) ==
        "tessera: head_compute_mix_bwd: argument 'grad_out': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from grad_out dim 1");
}

TEST_CASE("the head_compute_mix_bwd tests catch every mutant", "[mutants][mhc]") {
  enum class Mutant { none, no_slope, no_scale, no_base, sums_g, overwrites };
  const auto mutated = [](const HostTensors& in, const Params&, Mutant mutant) {
    const HostTensor &mix = in.at("input_mix"), &base = in.at("base");
    const double scale = in.at("scale").value(0);
    HostTensors out = {{"grad_input_mix", HostTensor(DType::f32, mix.shape())}};
    const int64_t n = base.size();
    std::vector<double> sums(static_cast<size_t>(n + 1), 0);  // of the bases, then of the scale
    for (int64_t e = 0; e < mix.size(); ++e) {
      const double z = mix.value(e) * scale + (mutant == Mutant::no_base ? 0 : base.value(e % n));
      const double s = 1 / (1 + std::exp(-z));
      const double g = (mutant == Mutant::no_slope ? s : s * (1 - s)) * in.at("grad_out").value(e);
      out["grad_input_mix"].set_value(e, mutant == Mutant::no_scale ? g : g * scale);
      sums[static_cast<size_t>(e % n)] += g;
      sums.back() += mutant == Mutant::sums_g ? g : g * mix.value(e);
    }
    for (const auto& [name, first, count] :
         {std::tuple("grad_scale", n, int64_t{1}), std::tuple("grad_base", int64_t{0}, n)}) {
      const auto given = in.find(name);
      const bool adds = given != in.end() && mutant != Mutant::overwrites;
      HostTensor grad(DType::f32, {count});
      for (int64_t i = 0; i < count; ++i) {
        grad.set_value(i,
                       sums[static_cast<size_t>(first + i)] + (adds ? given->second.value(i) : 0));
      }
      out[name] = grad;
    }
    return out;
  };
  check_mutants("head_compute_mix_bwd", head_compute_mix_bwd_cases(), Mutant::overwrites, mutated);
}
