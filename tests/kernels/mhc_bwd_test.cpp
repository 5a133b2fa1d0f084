// The backward hyper-connection ops on the executor: the references, then what bad calls are told.

#include <cmath>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

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

}  // namespace

TEST_CASE("sinkhorn_bwd equals its reference on the executor", "[sinkhorn_bwd]") {
  check_cases("sinkhorn_bwd", sinkhorn_bwd_cases());
}

TEST_CASE("sinkhorn_bwd is the slope of sinkhorn_fwd", "[sinkhorn_bwd]") {
  // A central difference of sum(grad_out * sinkhorn(x)), both sides by the references in f64 until
  // the last rounding: the two formulas share no step.
  const HostTensor x = some(DType::f32, {3, 4, 4}), grad_out = some(DType::f32, {3, 4, 4});
  const kernels::Params params = {{"repeat", int64_t{3}}, {"eps", 1e-2}};
  const HostTensor grad =
      op_runner("sinkhorn_bwd", Device::cpu())({{"grad_out", grad_out}, {"x", x}}, params)
          .at("grad_x");
  const auto loss = [&](const HostTensor& at) {
    const HostTensor out = reference::runner("sinkhorn_fwd")({{"x", at}}, params).at("out");
    double sum = 0;
    for (int64_t i = 0; i < out.size(); ++i) sum += out.value(i) * grad_out.value(i);
    return sum;
  };
  for (int64_t i = 0; i < x.size(); ++i) {
    HostTensor up = x, down = x;
    up.set_value(i, x.value(i) + 0x1p-7);
    down.set_value(i, x.value(i) - 0x1p-7);
    const double slope = (loss(up) - loss(down)) / (up.value(i) - down.value(i));
    CAPTURE(i, slope, grad.value(i));
    CHECK(std::abs(slope - grad.value(i)) < 2e-4);
  }
}

TEST_CASE("sinkhorn_bwd explains wrong arguments", "[sinkhorn_bwd][errors]") {
  const auto told = [](Dims grad, Dims x, int64_t repeat) {
    return outputs_error("sinkhorn_bwd",
                         {{"grad_out", some(DType::f32, grad)}, {"x", some(DType::f32, x)}},
                         {{"repeat", repeat}});
  };
  CHECK(told({6, 4, 4}, {6, 4, 4}, 45) == "no error");
  CHECK(told({6, 4, 4}, {6, 4, 4}, 46) ==
        "tessera: sinkhorn_bwd: parameter 'repeat' is out of range\n"
        "  expected  1 .. 45\n"
        "  got       46");
  CHECK(told({6, 4, 4}, {5, 4, 4}, 10) ==
        "tessera: sinkhorn_bwd: argument 'x' has the wrong shape\n"
        "  expected  f32[6, 4, 4]   (T = 6 from grad_out dim 0; n = 4 from grad_out dim 1)\n"
        "  got       f32[5, 4, 4] on cpu");
  CHECK(told({6, 5, 5}, {6, 5, 5}, 10) ==
        "tessera: sinkhorn_bwd: argument 'grad_out': so many streams are not supported\n"
        "  expected  n <= 4\n"
        "  got       n = 5 from grad_out dim 1");
}

TEST_CASE("post_bwd equals its reference on the executor", "[post_bwd]") {
  check_cases("post_bwd", post_bwd_cases());
}

TEST_CASE("post_bwd sums alike wherever its rows start", "[post_bwd]") {
  const int64_t hidden = 1280;
  HostTensors inputs;
  inputs["grad_out"] = some(DType::bf16, {2, 4, hidden});
  inputs["x"] = some(DType::bf16, {2, hidden});
  inputs["residual"] = some(DType::bf16, {2, 4, hidden});
  inputs["post_mix"] = some(DType::f32, {2, 4});
  inputs["comb_mix"] = some(DType::f32, {2, 4, 4});
  const HostTensors want = op_runner("post_bwd", Device::cpu())(inputs, {});
  const HostTensor storage(DType::bf16, {inputs["x"].size() + 8});
  auto* moved = static_cast<uint16_t*>(storage.view().data) + 1;
  for (int64_t i = 0; i < inputs["x"].size(); ++i) {
    moved[i] = static_cast<uint16_t>(inputs["x"].bits(i));
  }
  HostTensors outputs;
  kernels::Tensors views;
  for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
  views["x"] = TensorView(moved, DType::bf16, {2, hidden});
  for (const auto& [name, tensor] : want) {
    outputs[name] = HostTensor(tensor.dtype(), tensor.shape());
    views[name] = outputs[name].view();
  }
  kernels::find_op("post_bwd").run(views, {}, nullptr);
  for (const auto& [name, tensor] : want) {
    INFO(name);
    CHECK_THAT(outputs[name], EqualsBits(tensor));
  }
}

TEST_CASE("post_bwd explains wrong arguments", "[post_bwd][errors]") {
  HostTensors inputs;
  inputs["grad_out"] = some(DType::bf16, {6, 4, 64});
  inputs["x"] = some(DType::bf16, {6, 64});
  inputs["residual"] = some(DType::bf16, {6, 4, 64});
  inputs["post_mix"] = some(DType::f32, {6, 4});
  inputs["comb_mix"] = some(DType::f32, {6, 4, 4});
  const auto told = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("post_bwd", changed, {});
  };
  CHECK(told("x", inputs["x"]) == "no error");
  CHECK(told("residual", some(DType::bf16, {6, 4, 32})) ==
        "tessera: post_bwd: argument 'residual' has the wrong shape\n"
        "  expected  bf16[6, 4, 64]   (T = 6 from grad_out dim 0; n = 4 from grad_out dim 1; H = "
        "64 from grad_out dim 2)\n"
        "  got       bf16[6, 4, 32] on cpu");
  CHECK(told("comb_mix", some(DType::f32, {6, 4})) ==
        "tessera: post_bwd: argument 'comb_mix' has the wrong rank\n"
        "  expected  f32[6, 4, 4]   (T = 6 from grad_out dim 0; n = 4 from grad_out dim 1)\n"
        "  got       f32[6, 4] on cpu");
  CHECK(told("post_mix", some(DType::bf16, {6, 4})) ==
        "tessera: post_bwd: argument 'post_mix' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[6, 4] on cpu");
  inputs = {{"grad_out", some(DType::bf16, {6, 5, 64})},
            {"x", some(DType::bf16, {6, 64})},
            {"residual", some(DType::bf16, {6, 5, 64})},
            {"post_mix", some(DType::f32, {6, 5})},
            {"comb_mix", some(DType::f32, {6, 5, 5})}};
  CHECK(told("x", inputs["x"]) ==
        "tessera: post_bwd: argument 'grad_out': so many streams are not supported\n"
        "  expected  n <= 4\n"
        "  got       n = 5 from grad_out dim 1");
}
