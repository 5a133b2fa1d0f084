// The ops around the products of experts on the executor: references, what they equal bit for bit, mutants, errors.

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op) {
  const auto cases = cases_of(op);
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors run(const std::string& op, const HostTensors& inputs, const Params& params) {
  return op_runner(op, Device::cpu())(inputs, params);
}

void check_misread(const std::string& op,
                   const std::function<void(HostTensors&, Params&)>& mistake) {
  const kernels::UncheckedValues as_on_a_gpu;
  CHECK(is_caught(op, cases_of(op), misled(op, mistake)));
}

}  // namespace

TEST_CASE("moe_gather_cast equals its reference on the executor", "[moe_serving]") {
  check_cases("moe_gather_cast");
}

TEST_CASE("swiglu_psum_cast equals its reference on the executor", "[moe_serving]") {
  check_cases("swiglu_psum_cast");
}

TEST_CASE("combine_reduce equals its reference on the executor", "[moe_serving]") {
  check_cases("combine_reduce");
}

TEST_CASE("moe_gather_cast is the cast of expanded rows, and the expansion of cast rows",
          "[moe_serving]") {
  const int64_t tokens = 9, topk = 2, hidden = 320, experts = 4;
  const HostTensor x = random_tensor(DType::bf16, {tokens, hidden}, Values::normal, 7);
  const HostTensor ids = tensor_by(DType::i64, {tokens, topk}, [](int64_t i) { return i * 5 % 4; });
  const Params by_expert = {{"num_experts", experts}, {"alignment", int64_t{8}}};
  Params saving = by_expert;
  saving["save_m_indices"] = true;
  const HostTensors plan = run("moe_plan", {{"topk_idx", ids}}, saving);
  for (const char* layout : {"row_major", "col_major_tma", "packed_ue8m0"}) {
    CAPTURE(layout);
    const Params cast = {
        {"num_per_channels", int64_t{32}}, {"round_sf", true}, {"sf_layout", std::string(layout)}};
    Params format = cast, gathered = cast;
    format["format"] = std::string("e4m3");
    gathered["num_topk"] = topk;
    const HostTensors got =
        run("moe_gather_cast", {{"x", x}, {"pos_to_pair", plan.at("pos_to_pair")}}, gathered);
    const HostTensors expand = {{"token_topk_to_pos", plan.at("pair_to_pos")},
                                {"pos_to_expert", plan.at("m_indices")}};
    HostTensors rows = expand;
    rows["x"] = x;
    const HostTensor bf16_rows = run("expand_to_fused", rows, {}).at("out");
    const HostTensors cast_last = run("per_token_cast", {{"x", bf16_rows}}, format);
    CHECK(got.at("out").raw() == cast_last.at("out").raw());
    const HostTensors cast_first = run("per_token_cast", {{"x", x}}, format);
    HostTensors codes = expand;
    codes["x"] = cast_first.at("out");
    codes["x_sf"] = cast_first.at("out_sf");
    const HostTensors expanded =
        run("expand_to_fused_with_sf", codes,
            {{"num_per_channels", int64_t{32}}, {"sf_layout", std::string(layout)}});
    CHECK(got.at("out").raw() == expanded.at("out").raw());
    CHECK(got.at("out_sf").raw() == expanded.at("out_sf").raw());
  }
}

TEST_CASE("swiglu_psum_cast is swiglu_fwd in f32, then per_token_cast", "[moe_serving]") {
  const int64_t rows = 40, hidden = 256;
  const HostTensors in = {{"x", random_tensor(DType::bf16, {rows, 2 * hidden}, Values::normal, 8)},
                          {"topk_weights", random_tensor(DType::f32, {rows}, Values::normal, 9)},
                          {"psum", tensor_of(DType::i32, {3}, {16, 24, 40})}};
  const HostTensors got = run("swiglu_psum_cast", in,
                              {{"alignment", int64_t{8}},
                               {"swiglu_clamp_value", 0.5},
                               {"num_per_channels", int64_t{128}},
                               {"round_sf", false},
                               {"sf_layout", std::string("row_major")}});
  const HostTensors values = run(
      "swiglu_fwd", in,
      {{"alignment", int64_t{8}}, {"swiglu_clamp_value", 0.5}, {"out_dtype", std::string("f32")}});
  const HostTensors want =
      run("per_token_cast", {{"x", values.at("out")}},
          {{"format", std::string("e4m3")}, {"num_per_channels", int64_t{128}}});
  CHECK(got.at("out").raw() == want.at("out").raw());
  CHECK(got.at("out_sf").raw() == want.at("out_sf").raw());
}

TEST_CASE("combine_reduce is reduce_fused where there is no base", "[moe_serving]") {
  const int64_t tokens = 9, topk = 4, rows = 30, hidden = 512;
  const HostTensor x = random_tensor(DType::bf16, {rows, hidden}, Values::normal, 10);
  const HostTensor weights = random_tensor(DType::f32, {tokens, topk}, Values::normal, 11);
  const HostTensor pos =
      tensor_by(DType::i32, {tokens, topk}, [&](int64_t i) { return i * 7 % (rows + 1) - 1; });
  const HostTensor want =
      run("reduce_fused", {{"x", x}, {"topk_weights", weights}, {"token_topk_to_pos", pos}}, {})
          .at("out");
  CHECK(run("combine_reduce", {{"x", x}, {"topk_weights", weights}, {"pos", pos}}, {})
            .at("out")
            .raw() == want.raw());
}

TEST_CASE("the tests of the ops around experts catch every mutant", "[moe_serving][mutants]") {
  for (const char* op : {"moe_gather_cast", "swiglu_psum_cast", "combine_reduce"}) {
    const kernels::UncheckedValues as_on_a_gpu;
    CHECK_FALSE(is_caught(op, cases_of(op), misled(op, [](HostTensors&, Params&) {})));
  }
  check_misread("moe_gather_cast", [](HostTensors&, Params& p) {  // twice the slots
    p["num_topk"] = 2 * std::get<int64_t>(p.at("num_topk"));
  });
  check_misread("moe_gather_cast", [](HostTensors&, Params& p) { p["fill_padding"] = true; });
  check_misread("moe_gather_cast", [](HostTensors&, Params& p) { p["fill_padding"] = false; });
  check_misread("moe_gather_cast", [](HostTensors& in, Params&) {  // padding is token 0
    HostTensor& pairs = in["pos_to_pair"];
    for (int64_t i = 0; i < pairs.size(); ++i) pairs.set_value(i, std::max(pairs.value(i), 0.0));
  });
  check_misread("swiglu_psum_cast", [](HostTensors& in, Params&) { in.erase("topk_weights"); });
  check_misread("swiglu_psum_cast", [](HostTensors&, Params& p) { p["alignment"] = int64_t{1}; });
  check_misread("swiglu_psum_cast", [](HostTensors&, Params& p) {  // no clamp
    p["swiglu_clamp_value"] = std::numeric_limits<double>::infinity();
  });
  check_misread("swiglu_psum_cast", [](HostTensors& in, Params&) {  // all rows up to the last end
    for (int64_t e = 0; e + 1 < in["psum"].size(); ++e) in["psum"].set_value(e, 0);
  });
  check_misread("combine_reduce", [](HostTensors& in, Params&) { in.erase("base"); });
  check_misread("combine_reduce", [](HostTensors& in, Params&) { in.erase("num_tokens"); });
  check_misread("combine_reduce", [](HostTensors& in, Params&) { in.erase("topk_weights"); });
  check_misread("combine_reduce", [](HostTensors& in, Params&) {  // -1 is row 0
    HostTensor& rows = in["pos"];
    for (int64_t i = 0; i < rows.size() && in["x"].size() > 0; ++i) {
      rows.set_value(i, std::max(rows.value(i), 0.0));
    }
  });
}

TEST_CASE("the ops around experts explain wrong arguments", "[moe_serving][errors]") {
  const HostTensors rows = {{"x", HostTensor(DType::bf16, {4, 128})},
                            {"pos_to_pair", tensor_of(DType::i32, {3}, {0})}};
  CHECK(outputs_error("moe_gather_cast", rows, {{"num_topk", int64_t{2}}}) == "no error");
  CHECK(outputs_error("moe_gather_cast", rows,
                      {{"num_topk", int64_t{2}}, {"sf_layout", std::string("packed_ue8m0")}}) ==
        "tessera: moe_gather_cast: argument 'sf_layout': packed_ue8m0 scales are powers of two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0");
  const HostTensors gated = {{"x", HostTensor(DType::bf16, {4, 256})},
                             {"psum", tensor_of(DType::i32, {2}, {1, 4})}};
  CHECK(outputs_error("swiglu_psum_cast", gated, {}) == "no error");
  CHECK(outputs_error("swiglu_psum_cast", gated, {{"swiglu_clamp_value", 10.01}}) ==
        "tessera: swiglu_psum_cast: parameter 'swiglu_clamp_value' has a wrong value\n"
        "  expected  a value of bf16\n"
        "  got       10.010000");
  HostTensors no_experts = gated;
  no_experts["psum"] = HostTensor(DType::i32, {0});
  CHECK(outputs_error("swiglu_psum_cast", no_experts, {}) ==
        "tessera: swiglu_psum_cast: argument 'psum' has no experts\n"
        "  expected  E >= 1\n"
        "  got       E = 0 from psum dim 0");
  const HostTensors sums = {{"x", HostTensor(DType::bf16, {4, 64})},
                            {"pos", tensor_of(DType::i32, {2, 2}, {0, 1, 2, -1})},
                            {"base", HostTensor(DType::bf16, {2, 32})}};
  CHECK(outputs_error("combine_reduce", sums, {}) ==
        "tessera: combine_reduce: argument 'base' has the wrong shape\n"
        "  expected  bf16[2, 64]   (T = 2 from pos dim 0; H = 64 from x dim 1)\n"
        "  got       bf16[2, 32] on cpu");
}
