// The norms on the executor: the references, the mistakes that their cases catch, the chain of their
// parts, what bad calls are told.

#include <algorithm>
#include <cmath>

#include "tests/reference/numeric.h"
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
  CHECK(report.passed == std::ssize(cases));
}

HostTensors norm_inputs(int64_t hidden = 64) {
  return {{"x", HostTensor(DType::bf16, {5, hidden})},
          {"weight", HostTensor(DType::bf16, {hidden})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

/// Cases that the references run quickly.
std::vector<OpCase> small(std::vector<OpCase> cases) {
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("x").size() > 40000; });
  return cases;
}

}  // namespace

TEST_CASE("norm_fwd equals its reference on the executor", "[norm_fwd]") {
  check_cases("norm_fwd", norm_fwd_cases());
}

TEST_CASE("norm_fwd_and_per_token_cast equals its reference on the executor",
          "[norm_fwd_and_per_token_cast]") {
  check_cases("norm_fwd_and_per_token_cast", norm_fwd_and_per_token_cast_cases());
}

TEST_CASE("norm_bwd equals its reference on the executor", "[norm_bwd]") {
  check_cases("norm_bwd", norm_bwd_cases());
}

TEST_CASE("norm_fwd_and_per_token_cast is the chain of norm_fwd and per_token_cast",
          "[norm_fwd_and_per_token_cast]") {
  const auto run = [](const char* op, const HostTensors& in, const Params& params) {
    return op_runner(op, Device::cpu())(in, params);
  };
  const HostTensors in = {{"x", random_tensor(DType::bf16, {9, 2064}, Values::normal, 1)},
                          {"residual", random_tensor(DType::bf16, {9, 2064}, Values::normal, 2)},
                          {"weight", random_tensor(DType::bf16, {2064}, Values::normal, 3)}};
  const HostTensors fused = run("norm_fwd_and_per_token_cast", in,
                                {{"norm_eps", 1e-6}, {"save_bf16", true}, {"round_sf", true}});
  const HostTensors normed = run("norm_fwd", in, {{"norm_eps", 1e-6}});
  const HostTensors cast =
      run("per_token_cast", {{"x", normed.at("out")}},
          {{"format", std::string("e4m3")}, {"num_per_channels", int64_t{32}}, {"round_sf", true}});
  const auto same = [](const HostTensor& a, const HostTensor& b) {
    if (a.shape() != b.shape()) return false;
    for (int64_t i = 0; i < a.size(); ++i) {
      if (a.bits(i) != b.bits(i)) return false;
    }
    return true;
  };
  CHECK(same(fused.at("out"), cast.at("out")));
  CHECK(same(fused.at("out_sf"), cast.at("out_sf")));
  CHECK(same(fused.at("out_bf16"), normed.at("out")));
  CHECK(same(fused.at("residual_out"), normed.at("residual_out")));
}

TEST_CASE("the norm_fwd tests catch every mutant", "[norm_fwd][mutants]") {
  for (const std::string op : {"norm_fwd", "norm_fwd_and_per_token_cast"}) {
    CAPTURE(op);
    const auto cases =
        small(op == "norm_fwd" ? norm_fwd_cases() : norm_fwd_and_per_token_cast_cases());
    const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
      return is_caught(op, cases, misled(op, mistake));
    };
    CHECK_FALSE(caught([](HostTensors&, Params&) {}));
    CHECK(caught([](HostTensors& in, Params&) { in.erase("weight"); }));
    CHECK(caught([](HostTensors&, Params& params) { params["norm_eps"] = 0.0; }));
    CHECK(caught([](HostTensors&, Params& params) { params["out_scale"] = 1.0; }));
    CHECK(caught([](HostTensors& in, Params&) {  // nothing is added
      if (in.contains("residual")) in["residual"].fill_bytes(std::byte{0});
    }));
    CHECK(caught([](HostTensors& in, Params&) {  // columns in another order of the sum
      HostTensor& x = in["x"];
      const int64_t hidden = x.shape()[x.shape().rank - 1];
      if (x.size() == 0 || in.contains("residual")) return;
      for (int64_t i = 0; i < hidden; ++i) x.set_bits(i, x.bits(hidden - 1 - i));
    }));
    CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                      if (in.contains("residual")) out["residual_out"] = in.at("x");
                    })));
  }
  const std::string op = "norm_fwd_and_per_token_cast";
  const auto cases = small(norm_fwd_and_per_token_cast_cases());
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (!in.contains("mega_moe_sf")) return;  // tokens in ascending rows
                    HostTensor& words = out["mega_moe_sf"];
                    const int64_t columns = words.shape()[1];
                    const uint64_t first = words.bits(columns);
                    words.set_bits(columns, words.bits(4 * columns));
                    words.set_bits(4 * columns, first);
                  })));
  CHECK(is_caught(op, cases, misled(op, [](HostTensors&, Params& params) {
                    if (!params.contains("sf_layout") ||
                        std::get<std::string>(params["sf_layout"]) != "packed_ue8m0") {
                      params["round_sf"] = true;
                    }
                  })));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (in.contains("mega_moe_sf")) out["mega_moe_sf"].fill_bytes(std::byte{0});
                  })));
}

TEST_CASE("the norm_bwd tests catch every mutant", "[norm_bwd][mutants]") {
  const std::string op = "norm_bwd";
  const auto cases = small(norm_bwd_cases());
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params["out_scale"] = 1.0; }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("grad_residual_out"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // the weight has no part in the rows
    if (in.contains("weight")) {
      for (int64_t i = 0; i < in["weight"].size(); ++i) in["weight"].set_value(i, 1);
    }
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {  // no sum
                    if (in.contains("grad_weight")) out["grad_weight"] = in.at("grad_weight");
                  })));
  CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {
    HostTensors without = in;  // what was there is overwritten
    without.erase("grad_weight");
    HostTensors out = reference::runner(op)(without, params);
    if (in.contains("grad_weight")) {
      HostTensor sum = in.at("grad_weight");
      for (int64_t i = 0; i < sum.size(); ++i) sum.set_value(i, out["grad_weight"].value(i));
      out["grad_weight"] = std::move(sum);
    }
    return out;
  }));
  // the rows of all runs in one chain
  CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {
    HostTensors out = reference::runner(op)(in, params);
    const HostTensor& x = in.at("x");
    if (!in.contains("weight") || in.contains("grad_weight") || x.shape().rank != 2) return out;
    const auto scale = params.contains("out_scale")
                           ? static_cast<float>(std::get<double>(params.at("out_scale")))
                           : 1.0F;
    const int64_t hidden = x.shape()[1];
    for (int64_t i = 0; i < hidden; ++i) {
      float sum = 0;
      for (int64_t t = 0; t < x.shape()[0]; ++t) {
        const float xh = at(x, t * hidden + i) * at(in.at("rstd"), t);
        const float g = at(in.at("grad_out"), t * hidden + i) * scale;
        sum = std::fma(xh, g, sum);
      }
      out["grad_weight"].set_value(i, static_cast<double>(sum));
    }
    return out;
  }));
}

TEST_CASE("norms explain wrong arguments", "[norm_fwd][norm_bwd][errors]") {
  const Params eps = {{"norm_eps", 1e-6}};
  const auto told = [&](const HostTensors& inputs, Params params) {
    params.try_emplace("norm_eps", 1e-6);
    return outputs_error("norm_fwd", inputs, params);
  };
  CHECK(told(norm_inputs(), {}) == "no error");
  CHECK(outputs_error("norm_fwd", norm_inputs(), {}) ==
        "tessera: norm_fwd: parameter 'norm_eps' is missing\n"
        "  expected  float\n"
        "  got       none");
  CHECK(told(norm_inputs(24), {}) ==
        "tessera: norm_fwd: argument 'x': a row has the wrong number of columns\n"
        "  expected  H % 16 = 0\n"
        "  got       H = 24 from x dim 1");
  CHECK(told(norm_inputs(16400), {}) ==
        "tessera: norm_fwd: argument 'x': rows this long are not supported\n"
        "  expected  H <= 16384\n"
        "  got       H = 16400 from x dim 1");
  CHECK(told(norm_inputs(0), {}) ==
        "tessera: norm_fwd: argument 'x' has no columns\n"
        "  expected  H >= 1\n"
        "  got       H = 0 from x dim 1");
  CHECK(told(with(norm_inputs(), "weight", HostTensor(DType::f32, {64})), {}) ==
        "tessera: norm_fwd: argument 'weight' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[64] on cpu");
  const auto cast_told = [&](const HostTensors& inputs, Params params) {
    params.try_emplace("norm_eps", 1e-6);
    return outputs_error("norm_fwd_and_per_token_cast", inputs, params);
  };
  CHECK(cast_told(norm_inputs(), {{"sf_layout", std::string("packed_ue8m0")}}) ==
        "tessera: norm_fwd_and_per_token_cast: argument 'sf_layout': packed_ue8m0 scales are "
        "powers of two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0");
  const HostTensors mega =
      with(norm_inputs(128), "mega_moe_sf", HostTensor(DType::i32, {100, 1}, Dims{1, 100}));
  CHECK(cast_told(mega, {{"round_sf", true}, {"mega_moe_block_m", int64_t{64}}}) ==
        "tessera: norm_fwd_and_per_token_cast: argument 'mega_moe_sf' has the wrong strides\n"
        "  expected  (1, R) with R >= 128\n"
        "  got       i32[100, 1], strides [1, 100]");
  CHECK(cast_told(mega, {{"mega_moe_block_m", int64_t{64}}}) ==
        "tessera: norm_fwd_and_per_token_cast: argument 'round_sf': scales of 'mega_moe_sf' are "
        "powers of two\n"
        "  expected  round_sf where mega_moe_sf\n"
        "  got       round_sf = false, mega_moe_sf of i32");
  CHECK(cast_told(mega, {{"round_sf", true}}) ==
        "tessera: norm_fwd_and_per_token_cast: parameter 'mega_moe_block_m' is out of range\n"
        "  expected  1 <= mega_moe_block_m <= 65536 where mega_moe_sf\n"
        "  got       mega_moe_block_m = 0, mega_moe_sf of i32");
  const HostTensors grads = {{"x", HostTensor(DType::bf16, {5, 64})},
                             {"rstd", HostTensor(DType::f32, {5})},
                             {"grad_out", HostTensor(DType::bf16, {5, 64})}};
  CHECK(outputs_error("norm_bwd", grads, {}) == "no error");
  CHECK(outputs_error("norm_bwd", with(grads, "grad_out", HostTensor(DType::f32, {5, 64})), {}) ==
        "tessera: norm_bwd: argument 'x' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[5, 64] on cpu");
}
