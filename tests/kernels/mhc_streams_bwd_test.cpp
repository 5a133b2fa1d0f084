// Gradients of the ops that copy and mix residual streams, on the executor: the references, the
// slope of the forward ops, what bad calls are told, and mutants that the cases catch.

#include <cmath>

#include "kernels/op.h"
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

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() <= 1);
}

HostTensor some(DType dtype, Dims shape) {
  return random_tensor(dtype, shape, Values::normal, 1);
}

/// Integers from -3 to 3, times `unit`: sums and products of a few are exact in bf16.
HostTensor small_numbers(DType dtype, Dims shape, double unit, uint64_t seed) {
  HostTensor tensor(dtype, shape);
  Random random(seed);
  for (int64_t e = 0; e < tensor.size(); ++e) {
    tensor.set_value(e, unit * static_cast<double>(random.below(7) - 3));
  }
  return tensor;
}

float rounded(DType dtype, float value) {
  HostTensor one(dtype, {1});
  one.set_value(0, static_cast<double>(value));
  return at(one, 0);
}

/// The central difference of sum(grad_out * op(inputs)) for each element of one input, in steps of
/// `step`; exact where the outputs are.
HostTensor slope(const std::string& op, const HostTensors& inputs, const Params& params,
                 const std::string& input, const HostTensor& grad_out, double step) {
  const auto loss = [&](const HostTensor& changed) {
    HostTensors all = inputs;
    all[input] = changed;
    const HostTensor out = reference::runner(op)(all, params).at("out");
    double sum = 0;
    for (int64_t e = 0; e < out.size(); ++e) sum += out.value(e) * grad_out.value(e);
    return sum;
  };
  const HostTensor& x = inputs.at(input);
  HostTensor slopes(x.dtype(), x.shape());
  for (int64_t e = 0; e < x.size(); ++e) {
    HostTensor up = x, down = x;
    up.set_value(e, x.value(e) + step);
    down.set_value(e, x.value(e) - step);
    slopes.set_value(e, (loss(up) - loss(down)) / (2 * step));
  }
  return slopes;
}

}  // namespace

TEST_CASE("expand_to_mhc_bwd equals its reference on the executor", "[expand_to_mhc_bwd]") {
  check_cases("expand_to_mhc_bwd", expand_to_mhc_bwd_cases());
}

TEST_CASE("expand_to_mhc_bwd is the slope of expand_to_mhc_fwd", "[expand_to_mhc_bwd]") {
  const HostTensor x = small_numbers(DType::bf16, {3, 5}, 1, 2);
  const HostTensor grad_out = small_numbers(DType::bf16, {3, 4, 5}, 1, 3);
  const HostTensor want =
      slope("expand_to_mhc_fwd", {{"x", x}}, {{"mhc_mult", int64_t{4}}}, "x", grad_out, 1);
  const HostTensor grad =
      reference::runner("expand_to_mhc_bwd")({{"grad_out", grad_out}}, {}).at("grad_x");
  for (int64_t e = 0; e < x.size(); ++e) CHECK(grad.value(e) == want.value(e));
}

TEST_CASE("expand_to_mhc_bwd explains wrong arguments", "[expand_to_mhc_bwd][errors]") {
  const auto told = [](Dims shape, DType dtype = DType::bf16) {
    return outputs_error("expand_to_mhc_bwd", {{"grad_out", some(dtype, shape)}}, {});
  };
  CHECK(told({6, 4, 64}) == "no error");
  CHECK(told({6, 0, 64}) ==
        "tessera: expand_to_mhc_bwd: argument 'grad_out': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from grad_out dim 1");
  CHECK(told({1, 65537, 1}) ==
        "tessera: expand_to_mhc_bwd: argument 'grad_out': so many streams are not supported\n"
        "  expected  n <= 65536\n"
        "  got       n = 65537 from grad_out dim 1");
  CHECK(told({4, 64}) ==
        "tessera: expand_to_mhc_bwd: argument 'grad_out' has the wrong rank\n"
        "  expected  bf16[T, n, H]\n"
        "  got       bf16[4, 64] on cpu");
  CHECK(told({6, 4, 64}, DType::f32) ==
        "tessera: expand_to_mhc_bwd: argument 'grad_out' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[6, 4, 64] on cpu");
}

TEST_CASE("the expand_to_mhc_bwd tests catch every mutant", "[mutants][mhc]") {
  enum class Mutant { none, descending, rounds_sums, from_first };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& grad = in.at("grad_out");
    HostTensor out = reference::runner("expand_to_mhc_bwd")(in, params).at("grad_x");
    const int rank = grad.shape().rank;
    const int64_t n = grad.shape()[rank - 2], hidden = grad.shape()[rank - 1];
    for (int64_t e = 0; e < out.size(); ++e) {
      float sum = mutant == Mutant::from_first ? -0.0F : 0.0F;
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = mutant == Mutant::descending ? n - 1 - k : k;
        sum += at(grad, (e / hidden * n + i) * hidden + e % hidden);
        if (mutant == Mutant::rounds_sums) sum = rounded(DType::bf16, sum);
      }
      out.set_value(e, static_cast<double>(sum));
    }
    return HostTensors{{"grad_x", out}};
  };
  check_mutants("expand_to_mhc_bwd", expand_to_mhc_bwd_cases(), Mutant::from_first, mutated);
}

TEST_CASE("pre_apply_mix_bwd equals its reference on the executor", "[pre_apply_mix_bwd]") {
  check_cases("pre_apply_mix_bwd", pre_apply_mix_bwd_cases());
}

TEST_CASE("pre_apply_mix_bwd is the slope of pre_apply_mix_fwd", "[pre_apply_mix_bwd]") {
  const HostTensors inputs = {{"x", small_numbers(DType::bf16, {3, 4, 5}, 1, 2)},
                              {"mix", small_numbers(DType::f32, {3, 4}, 0.5, 3)}};
  const HostTensor grad_out = small_numbers(DType::bf16, {3, 5}, 1, 4);
  HostTensors with_grad = inputs;
  with_grad["grad_out"] = grad_out;
  const HostTensors grads = reference::runner("pre_apply_mix_bwd")(with_grad, {});
  const HostTensor of_x = slope("pre_apply_mix_fwd", inputs, {}, "x", grad_out, 1);
  const HostTensor of_mix = slope("pre_apply_mix_fwd", inputs, {}, "mix", grad_out, 0.5);
  for (int64_t e = 0; e < of_x.size(); ++e) CHECK(grads.at("grad_x").value(e) == of_x.value(e));
  for (int64_t e = 0; e < of_mix.size(); ++e) {
    CHECK(grads.at("grad_mix").value(e) == of_mix.value(e));
  }
}

TEST_CASE("pre_apply_mix_bwd sums alike wherever its rows start", "[pre_apply_mix_bwd]") {
  const int64_t hidden = 1280;
  HostTensors inputs;
  inputs["grad_out"] = some(DType::bf16, {2, hidden});
  inputs["x"] = some(DType::bf16, {2, 4, hidden});
  inputs["mix"] = some(DType::f32, {2, 4});
  const HostTensors want = op_runner("pre_apply_mix_bwd", Device::cpu())(inputs, {});
  const HostTensor storage(DType::bf16, {inputs["x"].size() + 8});
  auto* moved = static_cast<uint16_t*>(storage.view().data) + 1;
  for (int64_t e = 0; e < inputs["x"].size(); ++e) {
    moved[e] = static_cast<uint16_t>(inputs["x"].bits(e));
  }
  HostTensor grad_x(DType::bf16, {2, 4, hidden}), grad_mix(DType::f32, {2, 4});
  grad_x.fill_bytes(std::byte{0});
  kernels::find_op("pre_apply_mix_bwd")
      .run({{"grad_out", inputs["grad_out"].view()},
            {"x", TensorView(moved, DType::bf16, {2, 4, hidden})},
            {"mix", inputs["mix"].view()},
            {"grad_x", grad_x.view()},
            {"grad_mix", grad_mix.view()}},
           {}, nullptr);
  CHECK_THAT(grad_x, EqualsBits(want.at("grad_x")));
  CHECK_THAT(grad_mix, EqualsBits(want.at("grad_mix")));
}

TEST_CASE("pre_apply_mix_bwd explains wrong arguments", "[pre_apply_mix_bwd][errors]") {
  HostTensors inputs;
  inputs["grad_out"] = some(DType::bf16, {6, 64});
  inputs["x"] = some(DType::bf16, {6, 4, 64});
  inputs["mix"] = some(DType::f32, {6, 4});
  const auto told = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("pre_apply_mix_bwd", changed, {});
  };
  CHECK(told("x", inputs["x"]) == "no error");
  CHECK(told("grad_x", inputs["x"]) == "no error");
  CHECK(told("grad_x", some(DType::bf16, {6, 3, 64})) ==
        "tessera: pre_apply_mix_bwd: argument 'grad_x' has the wrong shape\n"
        "  expected  bf16[6, 4, 64]   (T = 6 from grad_out dim 0; n = 4 from x dim 1; H = 64 from "
        "grad_out dim 1)\n"
        "  got       bf16[6, 3, 64] on cpu");
  CHECK(told("grad_x", some(DType::f32, {6, 4, 64})) ==
        "tessera: pre_apply_mix_bwd: argument 'grad_x' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[6, 4, 64] on cpu");
  CHECK(told("mix", some(DType::f32, {6, 4, 1})) ==
        "tessera: pre_apply_mix_bwd: argument 'mix' has the wrong rank\n"
        "  expected  f32[6, 4]   (T = 6 from grad_out dim 0; n = 4 from x dim 1)\n"
        "  got       f32[6, 4, 1] on cpu");
  inputs["mix"] = some(DType::f32, {6, 17});
  CHECK(told("x", some(DType::bf16, {6, 17, 64})) ==
        "tessera: pre_apply_mix_bwd: argument 'x': so many streams are not supported\n"
        "  expected  n <= 16\n"
        "  got       n = 17 from x dim 1");
  inputs["mix"] = some(DType::f32, {6, 0});
  CHECK(told("x", some(DType::bf16, {6, 0, 64})) ==
        "tessera: pre_apply_mix_bwd: argument 'x': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from x dim 1");
}

TEST_CASE("the pre_apply_mix_bwd tests catch every mutant", "[mutants][mhc][slow]") {
  enum class Mutant { none, overwrites, rounds_product, not_fused, adds_mix };
  const auto mutated = [](const HostTensors& in, const Params&, Mutant mutant) {
    const HostTensor &x = in.at("x"), &mix = in.at("mix"), &grad_out = in.at("grad_out");
    const int rank = x.shape().rank;
    const int64_t n = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
    const auto given = in.find("grad_x");
    const bool adds = given != in.end() && mutant != Mutant::overwrites;
    HostTensor grad_x(DType::bf16, x.shape()), grad_mix(DType::f32, mix.shape());
    for (int64_t row = 0; row < mix.size(); ++row) {
      const float weight = at(mix, row);
      double sum = mutant == Mutant::adds_mix ? mix.value(row) : 0;
      for (int64_t h = 0; h < hidden; ++h) {
        const int64_t e = row * hidden + h;
        const float gradient = at(grad_out, row / n * hidden + h);
        const float before = adds ? at(given->second, e) : 0;
        float after = std::fma(weight, gradient, before);
        if (mutant == Mutant::not_fused) after = weight * gradient + before;
        if (mutant == Mutant::rounds_product) {
          after = rounded(DType::bf16, weight * gradient) + before;
        }
        grad_x.set_value(e, static_cast<double>(after));
        sum += x.value(e) * static_cast<double>(gradient);
      }
      grad_mix.set_value(row, sum);
    }
    return HostTensors{{"grad_x", grad_x}, {"grad_mix", grad_mix}};
  };
  check_mutants("pre_apply_mix_bwd", pre_apply_mix_bwd_cases(), Mutant::adds_mix, mutated);
}
