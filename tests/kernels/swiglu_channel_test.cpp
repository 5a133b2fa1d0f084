// The forward ops that cast columns of the gated activation, on the executor: the reference, mistakes
// that the cases must catch, and what bad calls are told.

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/op.h"
#include "tests/reference/per_channel_cast.h"
#include "tests/reference/swiglu.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kPlain = "swiglu_forward_and_per_channel_cast";
const std::string kTransposed = "swiglu_forward_and_per_channel_cast_and_transpose";

}  // namespace

TEST_CASE("swiglu_forward_and_per_channel_cast equals its reference on the executor",
          "[swiglu_channel][slow]") {
  const std::string op = GENERATE(kPlain, kTransposed);
  const auto cases = swiglu_forward_and_per_channel_cast_cases();
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("swiglu_forward_and_per_channel_cast casts the activation rounded to bf16",
          "[swiglu_channel]") {
  // A gate of 32 activates to 32 exactly, so that x carries the product to be rounded.
  HostTensor x(DType::bf16, {128, 128});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, i % 128 < 64 ? 32 : 1.0 + static_cast<double>(i / 128 % 128) / 128);
  }
  for (const std::string& op : {kPlain, kTransposed}) {
    const HostTensors got =
        op_runner(op, Device::cpu())({{"x", x}}, {{"num_per_tokens", int64_t{128}}});
    HostTensor products(DType::bf16, {128, 64});
    for (int64_t i = 0; i < products.size(); ++i) {
      products.set_value(i, 32 * x.value(i / 64 * 128 + 64));
    }
    const auto want = op == kPlain
                          ? reference::per_channel_cast(products, 128, false)
                          : reference::per_channel_cast_and_transpose(products, 128, false);
    CHECK_THAT(got.at("out"), EqualsBits(want.out));
    CHECK_THAT(got.at("out_sf"), EqualsBits(want.out_sf));
  }
}

TEST_CASE("swiglu_forward_and_per_channel_cast moves vectors of 8 bytes out", "[swiglu_channel]") {
  const HostTensor x(DType::bf16, {256, 256}), out(DType::e4m3, {256, 128});
  const HostTensor transposed(DType::e4m3, {128, 256}), out_sf(DType::f32, {8, 128});
  const auto text_of = [&](const std::string& name) {
    const kernels::OpInfo& op = kernels::find_op(name);
    const HostTensor& result = name == kPlain ? out : transposed;
    const auto built =
        op.kernels({{"x", x.view()}, {"out", result.view()}, {"out_sf", out_sf.view()}},
                   kernels::check_params(op, {{"num_per_tokens", int64_t{32}}}));
    REQUIRE(built.size() == 1);
    return cuda_text(built.front());
  };
  CHECK(count(text_of(kPlain), "store<8>(&out[") == 1);
  CHECK(count(text_of(kTransposed), "store<8>(&out[") == 1);
}

namespace {

enum class Mutant {
  none,
  not_rounded,  // to bf16
  up_is_activated,
  clamps_gate_below,
  no_lower_clamp_of_up,
  nan_becomes_clamp,
  ignores_clamp,
  one_run,
};

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  HostTensor x = inputs.at("x");
  const int64_t hidden = x.shape()[1] / 2;
  const auto run = std::get<int64_t>(params.at("num_per_tokens"));
  const auto round_sf = std::get<bool>(params.at("round_sf"));
  std::optional<float> clamp;
  if (const auto found = params.find("swiglu_clamp_value"); found != params.end()) {
    clamp = static_cast<float>(std::get<double>(found->second));
  }
  for (int64_t i = 0; i < x.shape()[0] * hidden; ++i) {
    const int64_t gate = i / hidden * 2 * hidden + i % hidden, up = gate + hidden;
    const double g = x.value(gate);
    if (mutant == Mutant::up_is_activated) {
      x.set_value(gate, x.value(up));
      x.set_value(up, g);
    }
    if (!clamp) continue;
    if (mutant == Mutant::clamps_gate_below && g < -static_cast<double>(*clamp)) {
      x.set_value(gate, -static_cast<double>(*clamp));
    }
    if (mutant == Mutant::nan_becomes_clamp && std::isnan(g)) {
      x.set_value(gate, static_cast<double>(*clamp));
    }
  }
  if (mutant == Mutant::ignores_clamp) clamp = {};
  HostTensor rows = reference::swiglu_rows(x, clamp);
  if (mutant == Mutant::not_rounded || mutant == Mutant::no_lower_clamp_of_up) {
    HostTensor wide(DType::f32, rows.shape());
    for (int64_t i = 0; i < wide.size(); ++i) {
      const int64_t gate = i / hidden * 2 * hidden + i % hidden;
      const auto g = static_cast<float>(x.value(gate)),
                 u = static_cast<float>(x.value(gate + hidden));
      const bool is_low = clamp && u < -*clamp && mutant == Mutant::no_lower_clamp_of_up;
      const float gate_alone =
          reference::swiglu(g, 1.0F, clamp ? std::max(*clamp, 1.0F) : clamp, {});
      const float value = is_low ? gate_alone * u : reference::swiglu(g, u, clamp, {});
      wide.set_value(i, static_cast<double>(value));
      if (is_low) rows.set_value(i, static_cast<double>(value));
    }
    if (mutant == Mutant::not_rounded) rows = wide;
  }
  const auto result =
      reference::per_channel_cast(rows, mutant == Mutant::one_run ? 128 : run, round_sf);
  HostTensor out_sf(DType::f32, {x.shape()[0] / run, hidden});
  for (int64_t i = 0; i < out_sf.size(); ++i) {
    const int64_t from = mutant == Mutant::one_run ? i / hidden * run / 128 : i / hidden;
    out_sf.set_bits(i, result.out_sf.bits(from * hidden + i % hidden));
  }
  return {{"out", result.out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the swiglu_forward_and_per_channel_cast tests catch every mutant",
          "[swiglu_channel][mutants][slow]") {
  check_mutants(kPlain, swiglu_forward_and_per_channel_cast_cases(), Mutant::one_run, mutated);
}

TEST_CASE("swiglu_forward_and_per_channel_cast explains wrong arguments",
          "[swiglu_channel][errors]") {
  const std::string op = GENERATE(kPlain, kTransposed);
  const auto told = [&](const HostTensor& x, Params params) {
    params.try_emplace("num_per_tokens", int64_t{32});
    return outputs_error(op, {{"x", x}}, params);
  };
  const std::string start = "tessera: " + op + ": ";
  const HostTensor x(DType::bf16, {128, 128});
  CHECK(told(x, {{"swiglu_clamp_value", 10.0}}) == "no error");
  CHECK(told(HostTensor(DType::bf16, {160, 128}), {}) == start +
                                                             "argument 'x' has the wrong shape\n"
                                                             "  expected  T % 128 = 0\n"
                                                             "  got       T = 160 from x dim 0");
  CHECK(told(HostTensor(DType::bf16, {128, 192}), {}) ==
        start +
            "argument 'x' has the wrong shape\n"
            "  expected  H % 64 = 0\n"
            "  got       H = 96 = 2H = 192 of x dim 1");
  CHECK(told(HostTensor(DType::f32, {128, 128}), {}) == start +
                                                            "argument 'x' has the wrong dtype\n"
                                                            "  expected  bf16\n"
                                                            "  got       f32[128, 128] on cpu");
  CHECK(told(x, {{"num_per_tokens", int64_t{64}}}) ==
        start +
            "parameter 'num_per_tokens' has a wrong value\n"
            "  expected  {32, 128}\n"
            "  got       64");
  CHECK(told(x, {{"swiglu_clamp_value", 0.0}}) ==
        start +
            "parameter 'swiglu_clamp_value' is out of range\n"
            "  expected  swiglu_clamp_value > 0 where swiglu_clamp_value != none\n"
            "  got       swiglu_clamp_value = 0");
}
