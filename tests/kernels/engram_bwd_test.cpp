// The backward Engram ops on the executor: the references, the slope of the forward pass, both forms
// of a kernel, then what bad calls are told.

#include <algorithm>
#include <cmath>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/op_cases.h"
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
  CHECK(report.passed == std::ssize(cases));
}

HostTensor some(DType dtype, const Dims& shape, uint64_t seed) {
  return random_tensor(dtype, shape, Values::normal, seed);
}

/// Inputs of both directions, with what the forward pass saves.
HostTensors gate_inputs(int64_t tokens, int64_t hidden, double eps) {
  HostTensors inputs = {{"hidden_states", some(DType::bf16, {tokens, 4, hidden}, 1)},
                        {"k", some(DType::bf16, {tokens, 4, hidden}, 2)},
                        {"v", some(DType::bf16, {tokens, hidden}, 3)},
                        {"weight_fused", some(DType::f32, {4, hidden}, 4)}};
  HostTensors saved = reference::runner("engram_gate_fwd")(inputs, {{"eps", eps}});
  saved.erase("out");
  inputs.merge(saved);
  inputs["grad_out"] = some(DType::bf16, {tokens, 4, hidden}, 5);
  return inputs;
}

/// sum(grad_out * engram_gate_fwd(...)) over one token and stream, in f64 without a rounding.
double gate_loss(const HostTensors& in, int64_t row, int64_t hidden, double eps) {
  const auto at = [&](const char* name, int64_t of_row, int64_t i) {
    return in.at(name).value(of_row * hidden + i);
  };
  double xx = 0, kk = 0, dot = 0, loss = 0;
  for (int64_t i = 0; i < hidden; ++i) {
    const double x = at("hidden_states", row, i), k = at("k", row, i);
    xx += x * x;
    kk += k * k;
    dot += x * k * at("weight_fused", row % 4, i);
  }
  const auto d = static_cast<double>(hidden);
  const double u = dot / std::sqrt(d * (xx / d + eps) * (kk / d + eps));
  const double gate =
      1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(u), 1e-6)), u)));
  for (int64_t i = 0; i < hidden; ++i) {
    loss += at("grad_out", row, i) * (at("hidden_states", row, i) + gate * at("v", row / 4, i));
  }
  return loss;
}

/// The bits that `params` give on a target.
HostTensors run_on(runtime::Target target, const HostTensors& inputs, const Params& params) {
  const kernels::jit::TargetScope scope(target);
  return op_runner("engram_gate_bwd", Device::cpu())(inputs, params);
}

}  // namespace

TEST_CASE("engram_gate_bwd equals its reference on the executor", "[engram_gate_bwd][slow]") {
  check_cases("engram_gate_bwd", engram_gate_bwd_cases());
}

TEST_CASE("engram_gate_bwd is the slope of engram_gate_fwd", "[engram_gate_bwd]") {
  constexpr int64_t kTokens = 2, kHidden = 512;
  constexpr double kEps = 1e-3;
  const HostTensors inputs = gate_inputs(kTokens, kHidden, kEps);
  const HostTensors grad =
      op_runner("engram_gate_bwd", Device::cpu())(inputs, {{"num_persistent_blocks", int64_t{1}}});
  // Central differences over one element of an input, which `rows` of the loss depend on.
  const auto slope = [&](const char* name, int64_t element, const std::vector<int64_t>& rows) {
    HostTensors up = inputs, down = inputs;
    const double value = inputs.at(name).value(element);
    up[name].set_value(element, value + 0x1p-5);
    down[name].set_value(element, value - 0x1p-5);
    double change = 0;
    for (const int64_t row : rows) {
      change += gate_loss(up, row, kHidden, kEps) - gate_loss(down, row, kHidden, kEps);
    }
    return change / (up[name].value(element) - down[name].value(element));
  };
  const auto check = [&](const char* name, int64_t element, double want) {
    const double got = grad.at(name).value(element);
    CAPTURE(name, element, want, got);
    CHECK(std::fabs(got - want) < 1e-4 + 0x1p-8 * std::fabs(want));
  };
  for (int64_t row = 0; row < kTokens * 4; ++row) {
    for (int64_t i = row; i < kHidden; i += 41) {
      const int64_t element = row * kHidden + i;
      check("grad_hidden_states", element, slope("hidden_states", element, {row}));
      check("grad_k", element, slope("k", element, {row}));
    }
  }
  for (int64_t i = 0; i < kHidden; i += 23) {
    check("grad_v", i, slope("v", i, {0, 1, 2, 3}));
    check("grad_w_partial", kHidden + i, slope("weight_fused", kHidden + i, {1, 5}));
  }
}

TEST_CASE("both forms of engram_gate_bwd give the same bytes", "[engram_gate_bwd][targets]") {
  // 96 KiB of weights and sums do not fit a block of sm_86 at 4096 columns, but one of sm_90.
  const HostTensors inputs = gate_inputs(7, 4096, 1e-20);
  const Params params = {{"num_persistent_blocks", int64_t{3}}};
  const HostTensors one = run_on({9, 0, 0}, inputs, params);
  const HostTensors two = run_on({8, 6, 0}, inputs, params);
  const kernels::OpInfo& op = kernels::find_op("engram_gate_bwd");
  kernels::Tensors views;
  for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
  const auto workspace = [&](runtime::Target target) {
    const kernels::jit::TargetScope scope(target);
    return num_elements(op.outputs(views, check_params(op, params)).back().shape);
  };
  CHECK(workspace({9, 0, 0}) == 0);
  CHECK(workspace({8, 6, 0}) == 3 * 7 * 4);
  REQUIRE(one.size() == 4);
  for (const auto& [name, tensor] : one) {
    INFO(name);
    CHECK_THAT(two.at(name), EqualsBits(tensor));
  }
}

TEST_CASE("a token's gradients do not depend on the partials", "[engram_gate_bwd]") {
  const HostTensors inputs = gate_inputs(11, 1536, 1e-20);
  const auto run = [&](int64_t partials) {
    return op_runner("engram_gate_bwd", Device::cpu())(inputs,
                                                       {{"num_persistent_blocks", partials}});
  };
  const HostTensors one = run(1), four = run(4);
  for (const char* name : {"grad_hidden_states", "grad_k", "grad_v"}) {
    INFO(name);
    CHECK_THAT(four.at(name), EqualsBits(one.at(name)));
  }
  CHECK(four.at("grad_w_partial").shape() == Dims{4, 4, 1536});
}

TEST_CASE("NaN in a saved score poisons the row of its stream alone", "[engram_gate_bwd]") {
  HostTensors inputs = gate_inputs(2, 512, 1e-20);
  const Params params = {{"num_persistent_blocks", int64_t{2}}};
  const HostTensors clean = op_runner("engram_gate_bwd", Device::cpu())(inputs, params);
  inputs["dot"].set_value(2, std::nan(""));  // token 0, stream 2
  const HostTensors got = op_runner("engram_gate_bwd", Device::cpu())(inputs, params);
  for (const char* name : {"grad_hidden_states", "grad_k"}) {
    for (int64_t i = 0; i < 8 * 512; ++i) {
      const bool is_poisoned = i / 512 == 2;
      REQUIRE(got.at(name).bits(i) == (is_poisoned ? 0x7FFF : clean.at(name).bits(i)));
    }
  }
  for (int64_t i = 0; i < 8 * 512; ++i) {
    const bool is_poisoned = i / 512 == 2;  // partial 0, stream 2
    REQUIRE(got.at("grad_w_partial").bits(i) ==
            (is_poisoned ? 0x7FFFFFFF : clean.at("grad_w_partial").bits(i)));
  }
  CHECK_THAT(got.at("grad_v"), EqualsBits(clean.at("grad_v")));
}

TEST_CASE("engram_gate_bwd explains wrong arguments", "[engram_gate_bwd][errors]") {
  const HostTensors inputs = gate_inputs(3, 512, 1e-20);
  const Params params = {{"num_persistent_blocks", int64_t{2}}};
  const auto told = [&](const std::string& name, HostTensor tensor) {
    HostTensors changed = inputs;
    changed[name] = std::move(tensor);
    return outputs_error("engram_gate_bwd", changed, params);
  };
  CHECK(outputs_error("engram_gate_bwd", inputs, params) == "no error");
  CHECK(outputs_error("engram_gate_bwd", inputs, {}) ==
        "tessera: engram_gate_bwd: parameter 'num_persistent_blocks' is missing\n"
        "  expected  int >= 1\n"
        "  got       none");
  CHECK(outputs_error("engram_gate_bwd", inputs, {{"num_persistent_blocks", int64_t{0}}}) ==
        "tessera: engram_gate_bwd: parameter 'num_persistent_blocks' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told("k", HostTensor(DType::bf16, {3, 4, 512}, {4096, 1024, 2})) ==
        "tessera: engram_gate_bwd: argument 'k' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       bf16[3, 4, 512], strides [4096, 1024, 2] on cpu");
  CHECK(told("grad_out", HostTensor(DType::bf16, {3, 2, 512})) ==
        "tessera: engram_gate_bwd: argument 'grad_out' has the wrong shape\n"
        "  expected  bf16[T, 4, D]\n"
        "  got       bf16[3, 2, 512] on cpu");
  CHECK(told("rstd_k", HostTensor(DType::f32, {3, 2})) ==
        "tessera: engram_gate_bwd: argument 'rstd_k' has the wrong shape\n"
        "  expected  f32[3, 4]   (T = 3 from grad_out dim 0)\n"
        "  got       f32[3, 2] on cpu");
  HostTensors short_rows = inputs;
  for (auto& [name, tensor] : short_rows) {
    Dims shape = tensor.shape();
    if (shape[shape.rank - 1] == 512) shape[shape.rank - 1] = 256;
    tensor = HostTensor(tensor.dtype(), shape);
  }
  CHECK(outputs_error("engram_gate_bwd", short_rows, params) ==
        "tessera: engram_gate_bwd: argument 'grad_out' has the wrong shape\n"
        "  expected  D % 512 = 0\n"
        "  got       D = 256 from grad_out dim 2");
}

TEST_CASE("grad_w_reduce equals its reference on the executor", "[grad_w_reduce][slow]") {
  check_cases("grad_w_reduce", grad_w_reduce_cases());
}

TEST_CASE("grad_w_reduce is the product rule of fused_weight", "[grad_w_reduce]") {
  // Central differences of sum over the partials of partial * weight_hidden * weight_embed.
  const HostTensors inputs = {{"grad_w_partial", some(DType::f32, {5, 2, 64}, 1)},
                              {"weight_hidden", some(DType::bf16, {2, 64}, 2)},
                              {"weight_embed", some(DType::bf16, {2, 64}, 3)}};
  const HostTensors grad = op_runner("grad_w_reduce", Device::cpu())(inputs, {});
  const auto loss = [&](int64_t i, double hidden, double embed) {
    double sum = 0;
    for (int64_t p = 0; p < 5; ++p) sum += inputs.at("grad_w_partial").value(p * 128 + i);
    return sum * hidden * embed;
  };
  for (int64_t i = 0; i < 128; ++i) {
    const double a = inputs.at("weight_hidden").value(i), b = inputs.at("weight_embed").value(i);
    const double by_hidden = loss(i, a + 0.5, b) - loss(i, a - 0.5, b);
    const double by_embed = loss(i, a, b + 0.5) - loss(i, a, b - 0.5);
    CHECK(std::fabs(grad.at("grad_weight_hidden").value(i) - by_hidden) < 1e-5);
    CHECK(std::fabs(grad.at("grad_weight_embed").value(i) - by_embed) < 1e-5);
  }
}

TEST_CASE("grad_w_reduce explains wrong arguments", "[grad_w_reduce][errors]") {
  const auto told = [](const Dims& partial, const Dims& gradient) {
    return outputs_error("grad_w_reduce",
                         {{"grad_w_partial", HostTensor(DType::f32, partial)},
                          {"weight_hidden", HostTensor(DType::bf16, {4, 512})},
                          {"weight_embed", HostTensor(DType::bf16, {4, 512})},
                          {"grad_weight_embed", HostTensor(DType::f32, gradient)}},
                         {});
  };
  CHECK(told({3, 4, 512}, {4, 512}) == "no error");
  CHECK(told({0, 4, 512}, {4, 512}) ==
        "tessera: grad_w_reduce: argument 'grad_w_partial': there must be a partial\n"
        "  expected  Z >= 1\n"
        "  got       Z = 0 from grad_w_partial dim 0");
  CHECK(told({3, 4, 512}, {4, 256}) ==
        "tessera: grad_w_reduce: argument 'grad_weight_embed' has the wrong shape\n"
        "  expected  f32[4, 512]   (hc = 4 from grad_w_partial dim 1; D = 512 from grad_w_partial "
        "dim 2)\n"
        "  got       f32[4, 256] on cpu");
  CHECK(told({3, 2, 512}, {4, 512}) ==
        "tessera: grad_w_reduce: argument 'weight_hidden' has the wrong shape\n"
        "  expected  bf16[2, 512]   (hc = 2 from grad_w_partial dim 1; D = 512 from grad_w_partial "
        "dim 2)\n"
        "  got       bf16[4, 512] on cpu");
}
