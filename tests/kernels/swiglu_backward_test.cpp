// swiglu_backward_and_per_token_cast on the executor: the reference, slopes of the forward formula,
// mistakes that the cases must catch, and what bad calls are told.

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/reference/swiglu.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kOp = "swiglu_backward_and_per_token_cast";

/// One row per entry, in order; every scale is 1 / 64.
HostTensors small_call(int64_t rows) {
  HostTensor x = random_tensor(DType::e4m3, {rows, 64}, Values::normal, 131);
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, 64 * x.value(i));
  return {{"x", x},
          {"x_sf", tensor_of(DType::f32, {rows, 2}, {0x1p-6})},
          {"grad_out", random_tensor(DType::bf16, {rows, 32}, Values::normal, 132)},
          {"weight", random_tensor(DType::f32, {rows, 1}, Values::uniform, 133)},
          {"pos_to_token_topk", tensor_by(DType::i32, {rows}, [](int64_t i) { return i; })},
          {"token_topk_to_pos", tensor_by(DType::i32, {rows, 1}, [](int64_t i) { return i; })}};
}

}  // namespace

TEST_CASE("swiglu_backward_and_per_token_cast equals its reference on the executor",
          "[swiglu_backward]") {
  const auto cases = swiglu_backward_and_per_token_cast_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("swiglu_backward is the slope of the weighted activation", "[swiglu_backward]") {
  // Central differences of sum(grad_out * weight * silu(x) * y), clamped, in f64.
  const double clamp = GENERATE(1e30, 0.7);  // no gate or up lies on a corner
  const HostTensors in = small_call(3);
  Params params = {{"num_per_channels", int64_t{32}}};
  params["swiglu_clamp_value"] = clamp;
  const HostTensors got = reference::runner(kOp)(in, params);
  const auto loss_of = [&](double gate, double up, double weight, double grad) {
    const double x = std::min(gate, clamp), y = std::max(std::min(up, clamp), -clamp);
    return grad * weight * x / (1 + std::exp(-x)) * y;
  };
  constexpr double kStep = 1e-5;
  for (int64_t row = 0; row < 3; ++row) {
    const double w = in.at("weight").value(row);
    double slope_of_weight = 0;
    for (int64_t h = 0; h < 32; ++h) {
      const double x = in.at("x").value(row * 64 + h) / 64;
      const double y = in.at("x").value(row * 64 + 32 + h) / 64;
      const double g = in.at("grad_out").value(row * 32 + h);
      const auto slope = [&](double dx, double dy, double dw) {
        return (loss_of(x + dx, y + dy, w + dw, g) - loss_of(x - dx, y - dy, w - dw, g)) /
               (2 * kStep);
      };
      CAPTURE(clamp, row, h, x, y, g, w);
      const double by_x = slope(kStep, 0, 0), by_y = slope(0, kStep, 0);
      CHECK(std::abs(got.at("grad_x").value(row * 64 + h) - by_x) <=
            1e-6 + 0x1p-8 * std::abs(by_x));
      CHECK(std::abs(got.at("grad_x").value(row * 64 + 32 + h) - by_y) <=
            1e-6 + 0x1p-8 * std::abs(by_y));
      slope_of_weight += slope(0, 0, kStep);
      const double out = loss_of(x, y, w, 1);
      CHECK(std::abs(got.at("out").value(row * 32 + h) - out) <= 1e-6 + 0x1p-8 * std::abs(out));
    }
    CHECK(std::abs(got.at("grad_weight").value(row) - slope_of_weight) < 1e-5);
  }
}

TEST_CASE("swiglu_backward keeps the signs of zero of padding rows", "[swiglu_backward]") {
  HostTensors in = small_call(2);
  in["pos_to_token_topk"] = tensor_of(DType::i32, {2}, {-1, 1});
  in["token_topk_to_pos"] = tensor_of(DType::i32, {2, 1}, {-1, 1});
  in["x"] = tensor_of(DType::e4m3, {2, 64}, {64});  // 1
  in["grad_out"] = tensor_of(DType::bf16, {2, 32}, {-1, 2});
  const HostTensors got = op_runner(kOp, Device::cpu())(in, {{"num_per_channels", int64_t{32}}});
  for (int64_t h = 0; h < 32; ++h) {
    const bool is_negative = h % 2 == 0;
    CHECK(got.at("out").bits(h) == 0);
    for (const int64_t half : {0, 32}) {
      CHECK(got.at("grad_x").bits(half + h) == (is_negative ? 0x8000 : 0));
      CHECK(got.at("grad_x_fp8").bits(half + h) == (is_negative ? 0x80 : 0));
    }
  }
  CHECK(got.at("grad_x_fp8_sf").bits(0) == 0x346FACAD);  // the floor
  CHECK(got.at("grad_weight").bits(0) == 0);
  CHECK(got.at("grad_weight").value(1) != 0);
}

TEST_CASE("NaN in a row of padding reaches no gradient", "[swiglu_backward]") {
  HostTensors in = small_call(2);
  in["pos_to_token_topk"] = tensor_of(DType::i32, {2}, {-1, 1});
  in["token_topk_to_pos"] = tensor_of(DType::i32, {2, 1}, {-1, 1});
  const auto zero_row = [&](const char* name, double value) {
    HostTensors spoiled = in;
    spoiled[name].set_value(0, value);
    const HostTensors got =
        op_runner(kOp, Device::cpu())(spoiled, {{"num_per_channels", int64_t{32}}});
    const auto is_zero = [&](const char* output, int64_t columns) {
      for (int64_t i = 0; i < columns; ++i) {
        if (got.at(output).value(i) != 0) return false;
      }
      return true;
    };
    return is_zero("out", 32) && is_zero("grad_x", 64) && is_zero("grad_x_fp8", 64) &&
           got.at("grad_x_fp8_sf").bits(0) == 0x346FACAD;  // the floor
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(zero_row("x", nan));
  CHECK(zero_row("x_sf", nan));
  CHECK(zero_row("x_sf", infinity));
  CHECK(zero_row("grad_out", nan));
  CHECK(zero_row("grad_out", infinity));
}

TEST_CASE("a row sums to the same gradient of its weight wherever it stands", "[swiglu_backward]") {
  const HostTensors one = small_call(1);
  HostTensors many = small_call(70);
  for (const char* name : {"x", "x_sf", "grad_out"}) {
    const int64_t size = one.at(name).size();
    for (int64_t i = 0; i < size; ++i) many.at(name).set_bits(69 * size + i, one.at(name).bits(i));
  }
  const Params params = {{"num_per_channels", int64_t{32}}};
  const auto run = op_runner(kOp, Device::cpu());
  CHECK(run(one, params).at("grad_weight").bits(0) == run(many, params).at("grad_weight").bits(69));
}

namespace {

/// Changes inputs or parameters before the reference, or its results.
struct Mutant {
  const char* name;
  std::function<void(HostTensors& inputs, Params& params)> before = {};
  std::function<void(const HostTensors& inputs, HostTensors& outputs)> after = {};
};

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = {
      {"no clamp", [](HostTensors&, Params& params) { params.erase("swiglu_clamp_value"); }},
      {"out without the weight",
       [](HostTensors& in, Params&) {
         for (int64_t i = 0; i < in.at("weight").size(); ++i) in.at("weight").set_value(i, 1);
       }},
      {"padding has the weight of entry 0",
       [](HostTensors& in, Params&) {
         HostTensor& slots = in.at("pos_to_token_topk");
         for (int64_t r = 0; r < slots.size(); ++r) {
           if (slots.value(r) < 0) slots.set_value(r, 0);
         }
       }},
      {"codes of gradients rounded to bf16",
       {},
       [](const HostTensors&, HostTensors& out) {
         HostTensor& codes = out.at("grad_x_fp8");
         const HostTensor &sf = out.at("grad_x_fp8_sf"), &grad = out.at("grad_x");
         if (codes.size() == 0) return;
         const int64_t group = codes.size() / sf.size();
         for (int64_t i = 0; i < codes.size(); ++i) {
           const auto scale = static_cast<float>(sf.value(i / group));
           codes.set_value(i, static_cast<double>(static_cast<float>(grad.value(i)) / scale));
         }
       }},
      {"not rounded scales", [](HostTensors&, Params& params) { params["round_sf"] = false; }},
      {"the weight in the gradient of the weight",
       {},
       [](const HostTensors& in, HostTensors& out) {
         HostTensor& grad = out.at("grad_weight");
         for (int64_t i = 0; i < grad.size(); ++i) {
           grad.set_value(i, grad.value(i) * in.at("weight").value(i));
         }
       }},
      {"an entry that no row owns is left as it is",
       {},
       [](const HostTensors& in, HostTensors& out) {
         HostTensor& grad = out.at("grad_weight");
         for (int64_t i = 0; i < grad.size(); ++i) {
           if (in.at("token_topk_to_pos").value(i) < 0) grad.set_bits(i, 0x7B7B7B7B);
         }
       }},
      {"a row writes to an entry that lives elsewhere",
       [](HostTensors& in, Params&) {
         HostTensor& slots = in.at("pos_to_token_topk");
         HostTensor& positions = in.at("token_topk_to_pos");
         for (int64_t r = 0; r < slots.size(); ++r) {
           const auto slot = static_cast<int64_t>(slots.value(r));
           if (slot >= 0 && slot < positions.size()) {
             positions.set_value(slot, static_cast<double>(r));
           }
         }
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("the swiglu_backward_and_per_token_cast tests catch every mutant",
          "[swiglu_backward][mutants][slow]") {
  std::vector<reference::Runner> runners;
  for (const Mutant& mutant : mutants()) {
    runners.push_back(mutant.before ? misled(kOp, mutant.before) : spoiled(kOp, mutant.after));
  }
  const std::vector<bool> caught =
      caught_by(kOp, swiglu_backward_and_per_token_cast_cases(), runners);
  for (size_t i = 0; i < runners.size(); ++i) {
    CAPTURE(mutants()[i].name);
    CHECK(caught[i]);
  }
}

TEST_CASE("swiglu_backward_and_per_token_cast explains wrong arguments",
          "[swiglu_backward][errors]") {
  const auto told = [](const HostTensors& changes, Params params) {
    HostTensors in = small_call(4);
    for (const auto& [name, tensor] : changes) in[name] = tensor;
    params.try_emplace("num_per_channels", int64_t{32});
    return outputs_error(kOp, in, params);
  };
  CHECK(told({}, {{"swiglu_clamp_value", 10.0}}) == "no error");
  const std::string op = "tessera: " + kOp + ": ";
  CHECK(told({{"x", HostTensor(DType::bf16, {4, 64})}}, {}) ==
        op + "argument 'x' has the wrong dtype\n"
             "  expected  e4m3\n"
             "  got       bf16[4, 64] on cpu");
  CHECK(told({{"x", HostTensor(DType::e4m3, {4, 80})}}, {}) ==
        op + "argument 'x' has the wrong shape\n"
             "  expected  H % num_per_channels = 0\n"
             "  got       H = 40 = 2H = 80 of x dim 1, num_per_channels = 32");
  CHECK(told({{"x_sf", HostTensor(DType::f32, {4, 3})}}, {}) ==
        op + "argument 'x_sf' has the wrong shape\n"
             "  expected  f32[4, 2]   (P = 4 from x dim 0; columns of x_sf = 2 = ceil(2H / 32))\n"
             "  got       f32[4, 3] on cpu");
  CHECK(told({{"grad_out", HostTensor(DType::bf16, {4, 64})}}, {}) ==
        op + "argument 'grad_out' has the wrong shape\n"
             "  expected  bf16[4, 32]   (P = 4 from x dim 0; H = 32 = 2H = 64 of x dim 1)\n"
             "  got       bf16[4, 64] on cpu");
  CHECK(told({{"pos_to_token_topk", HostTensor(DType::i32, {5})}}, {}) ==
        op + "argument 'pos_to_token_topk' has the wrong shape\n"
             "  expected  i32[4]   (P = 4 from x dim 0)\n"
             "  got       i32[5] on cpu");
  CHECK(told({{"token_topk_to_pos", HostTensor(DType::i32, {4, 2})}}, {}) ==
        op + "argument 'token_topk_to_pos' has the wrong shape\n"
             "  expected  i32[4, 1]   (T = 4 from weight dim 0; K = 1 from weight dim 1)\n"
             "  got       i32[4, 2] on cpu");
  CHECK(told({}, {{"num_per_channels", int64_t{64}}}) ==
        op + "parameter 'num_per_channels' has a wrong value\n"
             "  expected  {32, 128}\n"
             "  got       64");
  CHECK(told({}, {{"swiglu_clamp_value", -1.0}}) ==
        op + "parameter 'swiglu_clamp_value' is out of range\n"
             "  expected  swiglu_clamp_value > 0 where swiglu_clamp_value != none\n"
             "  got       swiglu_clamp_value = -1");
}
