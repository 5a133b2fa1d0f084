// swiglu_forward_and_per_token_cast on the executor: the reference, mistakes that the cases must
// catch, and what bad calls are told.

#include "tests/reference/swiglu.h"

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/jit/jit.h"
#include "kernels/quant/parts/swiglu_forward.h"
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

const std::string kOp = "swiglu_forward_and_per_token_cast";

}  // namespace

TEST_CASE("swiglu_forward_and_per_token_cast gives the reference's bytes on the executor",
          "[swiglu]") {
  const auto cases = swiglu_forward_and_per_token_cast_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("values per thread leave the bits of the gated cast as they are", "[swiglu]") {
  const int64_t rows = 13, hidden = 640;
  const HostTensor x = random_tensor(DType::bf16, {rows, 2, hidden}, Values::normal, 105);
  const HostTensor experts =
      tensor_by(DType::i32, {rows}, [](int64_t row) { return row % 5 == 3 ? -1 : row; });
  using Clamp = kernels::SwigluSpec::Clamp;
  const Clamp clamp = GENERATE(Clamp::counted, Clamp::none);
  const auto run_with = [&](int16_t per_thread) {
    kernels::SwigluSpec s{};
    s.in = DType::bf16;
    s.align = 16;
    s.clamp = clamp;
    using Experts = kernels::SwigluSpec::Experts;
    s.experts = clamp == Clamp::none ? Experts::by_row : Experts::none;
    s.hidden = static_cast<int32_t>(hidden);
    s.group = 128;
    s.per_thread = per_thread;
    std::vector<HostTensor> outputs = {HostTensor(DType::e4m3, {rows, hidden}),
                                       HostTensor(DType::f32, {rows, hidden / 128})};
    std::vector<TensorView> arguments = {x.view()};
    if (s.experts == Experts::by_row) arguments.push_back(experts.view());
    if (clamp == Clamp::counted) {
      outputs.emplace_back(DType::i64, Dims{3});
      outputs.back().fill_bytes(std::byte{0});
    }
    for (const HostTensor& output : outputs) arguments.push_back(output.view());
    const kernels::jit::Scalar clamp_value[] = {0.5f};
    const std::span<const kernels::jit::Scalar> scalars(clamp_value,
                                                        clamp == Clamp::counted ? 1 : 0);
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernels::build_swiglu_forward(s), arguments, scalars, nullptr);
    return outputs;
  };
  const std::vector<HostTensor> want = run_with(8);
  if (clamp == Clamp::counted) CHECK(want[2].value(0) > 1000);
  for (const int16_t per_thread : {int16_t{16}, int16_t{32}}) {
    CAPTURE(per_thread);
    const std::vector<HostTensor> got = run_with(per_thread);
    for (size_t i = 0; i < got.size(); ++i) CHECK_THAT(got[i], EqualsBits(want[i]));
  }
}

namespace {

enum class Mutant {
  none,
  up_is_activated,
  clamps_gate_below,
  no_lower_clamp_of_up,
  nan_becomes_clamp,
  counts_padding,
  counts_equal,
  ignores_weight,
  keeps_padding,
  floor_on_scale,
  replaces_count,
};

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  HostTensors other = inputs;
  Params changed = params;
  HostTensor& x = other.at("x");
  const int64_t rows = x.shape()[0], hidden = x.shape()[1] / 2;
  const auto clamp = params.find("swiglu_clamp_value");
  const double c = clamp == params.end() ? std::numeric_limits<double>::infinity()
                                         : std::get<double>(clamp->second);
  const auto each = [&](const auto& change) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < hidden; ++h) {
        double gate = x.value(r * 2 * hidden + h), up = x.value(r * 2 * hidden + hidden + h);
        change(gate, up);
        x.set_value(r * 2 * hidden + h, gate);
        x.set_value(r * 2 * hidden + hidden + h, up);
      }
    }
  };
  if (mutant == Mutant::up_is_activated) each([](double& g, double& u) { std::swap(g, u); });
  if (mutant == Mutant::clamps_gate_below)
    each([&](double& g, double&) {
      if (g < -c) g = -c;
    });
  if (mutant == Mutant::nan_becomes_clamp) {
    each([&](double& g, double&) {
      if (std::isnan(g) && std::isfinite(c)) g = c;
    });
  }
  if (mutant == Mutant::ignores_weight) {
    other.erase("topk_weights");
    other.erase("pos_to_token_topk");
  }
  if (mutant == Mutant::keeps_padding || mutant == Mutant::counts_padding) {
    other.erase("pos_to_expert");
  }
  if (mutant == Mutant::floor_on_scale && params.contains("sf_clamp_min")) {
    changed["sf_clamp_min"] = 448 * std::get<double>(params.at("sf_clamp_min"));
  }
  HostTensors result = reference::runner(kOp)(other, changed);
  const HostTensors right = reference::runner(kOp)(inputs, params);
  if (mutant == Mutant::counts_padding || mutant == Mutant::keeps_padding) {
    const bool counts = mutant == Mutant::counts_padding;
    for (auto& [name, tensor] : result) {
      if ((name == "clamped_count") != counts) tensor = right.at(name);
    }
  }
  const auto count = result.find("clamped_count");
  if (count != result.end() && mutant == Mutant::replaces_count) {
    for (int64_t i = 0; i < 3; ++i) {
      count->second.set_bits(i, count->second.bits(i) - inputs.at("clamped_count").bits(i));
    }
  }
  if (count != result.end() && mutant == Mutant::counts_equal) {
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x.value(i) == c) count->second.set_bits(0, count->second.bits(0) + 1);
    }
  }
  if (mutant == Mutant::no_lower_clamp_of_up) {
    each([&](double&, double& u) {
      if (u < -c) u = -2 * c;
    });
    Params wide = params;  // -2 c survives a clamp of 2 c, and so does everything above c
    if (std::isfinite(c)) wide["swiglu_clamp_value"] = 2 * c;
    return reference::runner(kOp)(other, wide);
  }
  return result;
}

}  // namespace

TEST_CASE("the swiglu_forward_and_per_token_cast tests catch every mutant",
          "[swiglu][mutants][slow]") {
  check_mutants(kOp, swiglu_forward_and_per_token_cast_cases(), Mutant::replaces_count, mutated);
}

TEST_CASE("swiglu_forward_and_per_token_cast explains wrong arguments", "[swiglu][errors]") {
  const HostTensor x(DType::bf16, {4, 512}), slots(DType::i32, {4}), count(DType::i64, {3});
  const auto told = [&](HostTensors more, Params params) {
    more.try_emplace("x", x);
    params.try_emplace("num_per_channels", int64_t{128});
    return outputs_error(kOp, more, params);
  };
  const std::string op = "tessera: " + kOp + ": ";
  CHECK(told({}, {}) == "no error");
  CHECK(told({{"x", HostTensor(DType::bf16, {4, 384})}}, {}) ==
        op + "argument 'x' has the wrong shape\n"
             "  expected  H % 128 = 0\n"
             "  got       H = 192 = 2H = 384 of x dim 1");
  CHECK(told({}, {{"num_per_channels", int64_t{64}}}) ==
        op + "parameter 'num_per_channels' is out of range\n"
             "  expected  num_per_channels = 128 or num_per_channels = H\n"
             "  got       num_per_channels = 64, H = 256 = 2H = 512 of x dim 1");
  CHECK(
      told({}, {{"num_per_channels", int64_t{256}}, {"sf_layout", std::string("col_major_tma")}}) ==
      op + "argument 'sf_layout': one scale per row is stored row-major\n"
           "  expected  sf_layout = row_major where num_per_channels != 128\n"
           "  got       sf_layout = col_major_tma, num_per_channels = 256");
  CHECK(told({{"pos_to_token_topk", slots}}, {}) ==
        op + "argument 'pos_to_token_topk' goes with other arguments only\n"
             "  expected  a tensor only where topk_weights\n"
             "  got       no topk_weights");
  CHECK(told({{"pos_to_expert", HostTensor(DType::i32, {5})}}, {}).find("'pos_to_expert'") !=
        std::string::npos);
  CHECK(told({{"clamped_count", count}}, {}) ==
        op + "'clamped_count' needs 'swiglu_clamp_value'\n"
             "  expected  swiglu_clamp_value != none where clamped_count\n"
             "  got       swiglu_clamp_value = none, clamped_count of i64");
  for (const double clamp : {0.0, -1.0, std::nan("")}) {
    CHECK(told({}, {{"swiglu_clamp_value", clamp}})
              .starts_with(op + "parameter 'swiglu_clamp_value' is out of range\n"
                                "  expected  swiglu_clamp_value > 0 where"));
  }
  for (const double least : {0.0, 1e-36, std::numeric_limits<double>::infinity()}) {
    CHECK(told({}, {{"sf_clamp_min", least}})
              .starts_with(op + "parameter 'sf_clamp_min' is out of range\n"
                                "  expected  2^-117 <= sf_clamp_min <= 3.4028234e38 where"));
  }
}
