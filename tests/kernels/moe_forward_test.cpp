// moe_forward on the executor: the reference, the chain of its parts bit for bit, tokens that do not see each other, a
// product in f64, mutants, errors.

#include <algorithm>
#include <array>
#include <cmath>
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

const std::string kOp = "moe_forward";

HostTensors run(const std::string& op, const HostTensors& inputs, const Params& params) {
  return op_runner(op, Device::cpu())(inputs, params);
}

HostTensor without_gaps(const HostTensor& x) {
  HostTensor rows(x.dtype(), x.shape());
  for (int64_t i = 0; i < x.size(); ++i) rows.set_bits(i, x.bits(i));
  return rows;
}

/// The parts one after another, with another alignment and every row of padding filled.
class Parts {
 public:
  Parts(const HostTensors& in, const Params& params)
      : in_(in),
        params_(params),
        is_bf16_(params.contains("activation")),
        at_sums_(params.contains("weights_at")),
        plan_(run("moe_plan",
                  with({{"topk_idx", in.at("topk_idx")}, {"topk_weights", in.at("topk_weights")}},
                       "num_tokens"),
                  {{"num_experts", in.at("w13").shape()[0]}, {"alignment", kAlignment}})) {}

  HostTensor operator()() const {
    HostTensors sums = {{"x", product(gated(product(gather(), "w13")), "w2")},
                        {"pos", plan_.at("pair_to_pos")}};
    if (at_sums_) sums["topk_weights"] = in_.at("topk_weights");
    return run("combine_reduce", with(with(sums, "base"), "num_tokens"), {}).at("out");
  }

 private:
  static constexpr int64_t kAlignment = 8;

  HostTensors with(HostTensors tensors, const char* name) const {
    if (in_.contains(name)) tensors[name] = in_.at(name);
    return tensors;
  }
  Params cast() const {
    const auto given = params_.find("num_per_channels");
    return {{"num_per_channels",
             given == params_.end() ? kernels::ParamValue(int64_t{128}) : given->second},
            {"round_sf", params_.at("round_sf")}};
  }
  HostTensors gather() const {
    const int64_t topk = in_.at("topk_idx").shape()[1];
    if (is_bf16_) {
      return run("expand_to_fused",
                 {{"x", without_gaps(in_.at("x"))},
                  {"token_topk_to_pos", plan_.at("pair_to_pos")},
                  {"pos_to_expert", plan_.at("pos_to_pair")}},
                 {});
    }
    Params params = cast();
    params["num_topk"] = std::max<int64_t>(topk, 1);
    return run("moe_gather_cast", {{"x", in_.at("x")}, {"pos_to_pair", plan_.at("pos_to_pair")}},
               params);
  }
  HostTensor product(const HostTensors& left, const std::string& weights) const {
    const bool is_packed = in_.contains(weights + "_shift");
    const int64_t columns =
        weights == "w2" ? in_.at("x").shape()[1] : in_.at(is_packed ? "w13_sf" : "w13").shape()[1];
    HostTensors in = {{"a", left.at("out")},
                      {"b", in_.at(weights)},
                      {"b_sf", in_.at(weights + "_sf")},
                      {"psum", plan_.at("psum")},
                      {"out", tensor_of(DType::bf16, {left.at("out").shape()[0], columns},
                                        {std::numeric_limits<double>::quiet_NaN()})}};
    if (!is_bf16_) in["a_sf"] = left.at("out_sf");
    Params params = {{"alignment", kAlignment}};
    if (!is_packed) return run("gemm_fp8_grouped", in, params).at("out");
    in["b_shift"] = in_.at(weights + "_shift");
    params["num_per_channels"] = cast().at("num_per_channels");
    return run("gemm_mxfp4_grouped", in, params).at("out");
  }
  HostTensors gated(const HostTensor& x) const {
    HostTensors in = {{"x", x}, {"psum", plan_.at("psum")}};
    if (!at_sums_) in["topk_weights"] = plan_.at("row_weights");
    const auto clamp = params_.find("swiglu_clamp_value");
    if (is_bf16_) {
      Params params = {{"out_dtype", std::string("bf16")}, {"alignment", kAlignment}};
      if (clamp != params_.end()) params["swiglu_clamp_value"] = clamp->second;
      return run("swiglu_fwd", in, params);
    }
    Params params = cast();
    params["alignment"] = kAlignment;
    params["sf_layout"] = std::string("row_major");
    params["swiglu_clamp_value"] =
        clamp == params_.end() ? kernels::ParamValue(std::numeric_limits<double>::infinity())
                               : clamp->second;
    return run("swiglu_psum_cast", in, params);
  }

  const HostTensors& in_;
  const Params& params_;
  const bool is_bf16_, at_sums_;
  const HostTensors plan_;
};

/// Rows of tokens of a case, in this order.
HostTensors of_tokens(const HostTensors& in, const std::vector<int64_t>& tokens) {
  HostTensors result = in;
  for (const char* name : {"x", "topk_idx", "topk_weights", "base"}) {
    if (!in.contains(name)) continue;
    const HostTensor& all = in.at(name);
    const int64_t columns = all.shape()[1];
    HostTensor some(all.dtype(), {std::ssize(tokens), columns});
    for (int64_t i = 0; i < some.size(); ++i) {
      some.set_bits(i, all.bits(tokens[static_cast<size_t>(i / columns)] * columns + i % columns));
    }
    result[name] = std::move(some);
  }
  return result;
}

/// The result of a call in the caller's workspace.
HostTensor run_in(HostTensor& workspace, const HostTensors& in, const Params& given) {
  const kernels::OpInfo& op = kernels::find_op(kOp);
  const Params params = kernels::check_params(op, given);
  HostTensor out(DType::bf16, in.at("x").shape());
  kernels::Tensors views = {{"out", out.view()}, {"workspace", workspace.view()}};
  for (const auto& [name, tensor] : in) views[name] = tensor.view();
  op.run(views, params, nullptr);
  return out;
}

/// The shape of the workspace of a call.
kernels::OutputInfo workspace_of(const HostTensors& in, const Params& given) {
  const kernels::OpInfo& op = kernels::find_op(kOp);
  kernels::Tensors views;
  for (const auto& [name, tensor] : in) views[name] = tensor.view();
  for (const kernels::OutputInfo& info : op.outputs(views, kernels::check_params(op, given))) {
    if (info.workspace) return info;
  }
  return {};
}

OpCase a_case(bool has_base) {
  for (const OpCase& test : moe_forward_cases()) {
    if (test.inputs.contains("base") == has_base && test.inputs.at("x").shape()[0] == 37) {
      return test;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("moe_forward equals its reference on the executor", "[moe_forward]") {
  const auto cases = moe_forward_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("moe_forward is its parts, bit for bit, whatever the alignment", "[moe_forward]") {
  const kernels::UncheckedValues as_on_a_gpu;
  for (const OpCase& test : moe_forward_cases()) {
    if (test.inputs.at("topk_idx").size() == 0) continue;
    CAPTURE(test.label);
    CHECK(run(kOp, test.inputs, test.params).at("out").raw() ==
          Parts(test.inputs, test.params)().raw());
  }
}

TEST_CASE("a token's bits depend on no other token, nor on the order of tokens", "[moe_forward]") {
  const OpCase test = a_case(true);
  const HostTensor whole = run(kOp, test.inputs, test.params).at("out");
  const int64_t hidden = whole.shape()[1];
  for (const std::vector<int64_t>& tokens :
       {std::vector<int64_t>{0}, {36, 3, 5}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}) {
    HostTensors in = of_tokens(test.inputs, tokens);
    const HostTensor part = run(kOp, in, test.params).at("out");
    in["num_tokens"] = tensor_of(DType::i32, {1}, {1});
    const HostTensor first = run(kOp, in, test.params).at("out");
    int64_t wrong = 0;
    for (int64_t i = 0; i < part.size(); ++i) {
      const int64_t token = tokens[static_cast<size_t>(i / hidden)];
      wrong += part.bits(i) == whole.bits(token * hidden + i % hidden) ? 0 : 1;
      wrong += first.bits(i) == (i < hidden ? part.bits(i) : 0) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a token with NaN, and weights that are none, stay in their token", "[moe_forward]") {
  OpCase test = a_case(true);
  const HostTensor before = run(kOp, test.inputs, test.params).at("out");
  const int64_t hidden = before.shape()[1];
  test.inputs["x"].set_value(2 * hidden + 5, std::numeric_limits<double>::quiet_NaN());
  test.inputs["topk_weights"].set_value(4 * 3, std::numeric_limits<double>::quiet_NaN());
  const HostTensor after = run(kOp, test.inputs, test.params).at("out");
  int64_t moved = 0;
  for (int64_t i = 0; i < before.size(); ++i) {
    if (i / hidden == 2 || i / hidden == 4) {
      CHECK(std::isnan(after.value(i)));
    } else {
      moved += before.bits(i) == after.bits(i) ? 0 : 1;
    }
  }
  CHECK(moved == 0);
}

TEST_CASE("no row of the workspace is seen that the call has not written", "[moe_forward]") {
  const kernels::UncheckedValues as_on_a_gpu;
  for (const OpCase& test : moe_forward_cases()) {
    if (test.inputs.at("topk_idx").size() == 0) continue;
    CAPTURE(test.label);
    const HostTensor want = run(kOp, test.inputs, test.params).at("out");
    HostTensor workspace(DType::f32, workspace_of(test.inputs, test.params).shape);
    // NaN in every format, ids that are none; then finite numbers and ids that are large.
    for (const uint8_t poison : std::array<uint8_t, 3>{0xFF, 0x7F, 0x41}) {
      workspace.fill_bytes(std::byte{poison});
      CHECK(run_in(workspace, test.inputs, test.params).raw() == want.raw());
    }
  }
}

TEST_CASE(
    "one workspace serves calls with other numbers of tokens on the device, one after another",
    "[moe_forward]") {
  OpCase test = a_case(true);
  HostTensor workspace(DType::f32, workspace_of(test.inputs, test.params).shape);
  workspace.fill_bytes(std::byte{0xFF});
  for (const int64_t count : {37, 3, 20, 0, 37, 1}) {
    CAPTURE(count);
    test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(count)});
    CHECK(run_in(workspace, test.inputs, test.params).raw() ==
          run(kOp, test.inputs, test.params).at("out").raw());
  }
}

TEST_CASE("the workspace of moe_forward holds the rows between its parts and little more",
          "[moe_forward]") {
  const int64_t experts = 8, hidden = 512, inner = 256;
  for (const int64_t tokens : {1, 37, 1024, 12000}) {
    const int64_t topk = 6, rows = tokens * topk;
    CAPTURE(tokens);
    const HostTensors in = {{"x", HostTensor(DType::bf16, {tokens, hidden})},
                            {"topk_idx", HostTensor(DType::i32, {tokens, topk})},
                            {"topk_weights", HostTensor(DType::f32, {tokens, topk})},
                            {"w13", HostTensor(DType::e4m3, {experts, 2 * inner, hidden})},
                            {"w13_sf", HostTensor(DType::f32, {experts, 4, 4})},
                            {"w2", HostTensor(DType::e4m3, {experts, hidden, inner})},
                            {"w2_sf", HostTensor(DType::f32, {experts, 4, 2})}};
    const int64_t bytes = 4 * workspace_of(in, {}).shape[0];
    // Rows in e4m3 and bf16, a scale for each 128 columns; then the plan: two words a row, more for sorting.
    const int64_t of_rows = rows * (3 * hidden + 5 * inner + 4 * (hidden + inner) / 128);
    CHECK(bytes >= of_rows);
    CHECK(bytes <= of_rows + 28 * rows + 16 * 1024);
  }
}

TEST_CASE("moe_forward is near a layer in f64", "[moe_forward]") {
  const OpCase test = a_case(true);
  const HostTensors& in = test.inputs;
  const HostTensor out = run(kOp, in, test.params).at("out");
  const int64_t tokens = 37, topk = 3, hidden = 128, inner = 128;
  double products = 0, squares = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> want(hidden);
    for (int64_t h = 0; h < hidden; ++h)
      want[static_cast<size_t>(h)] = in.at("base").value(t * hidden + h);
    for (int64_t k = 0; k < topk; ++k) {
      const auto e = static_cast<int64_t>(in.at("topk_idx").value(t * topk + k));
      if (e < 0) continue;
      std::vector<double> mid(2 * inner);
      for (int64_t n = 0; n < 2 * inner; ++n) {
        for (int64_t h = 0; h < hidden; ++h) {
          mid[static_cast<size_t>(n)] += in.at("x").value(t * hidden + h) *
                                         in.at("w13").value((e * 2 * inner + n) * hidden + h) *
                                         in.at("w13_sf").value(e * 2 + n / 128);
        }
      }
      for (int64_t h = 0; h < hidden; ++h) {
        double sum = 0;
        for (int64_t i = 0; i < inner; ++i) {
          const double gate = mid[static_cast<size_t>(i)];
          sum += gate / (1 + std::exp(-gate)) * mid[static_cast<size_t>(inner + i)] *
                 in.at("w2").value((e * hidden + h) * inner + i) * in.at("w2_sf").value(e);
        }
        want[static_cast<size_t>(h)] += in.at("topk_weights").value(t * topk + k) * sum;
      }
    }
    for (int64_t h = 0; h < hidden; ++h) {
      const double x = want[static_cast<size_t>(h)], y = out.value(t * hidden + h);
      products += x * y;
      squares += x * x + y * y;
    }
  }
  CHECK(1 - 2 * products / squares <= 5e-3);
  CHECK(squares > 0);
}

TEST_CASE("the moe_forward tests catch every mutant", "[moe_forward][mutants]") {
  const kernels::UncheckedValues as_on_a_gpu;
  const auto cases = moe_forward_cases();
  const auto misread = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(kOp, cases, misled(kOp, mistake));
  };
  CHECK_FALSE(misread([](HostTensors&, Params&) {}));
  CHECK(misread([](HostTensors& in, Params&) { in.erase("base"); }));
  CHECK(misread([](HostTensors& in, Params&) { in.erase("num_tokens"); }));
  CHECK(misread([](HostTensors&, Params& p) { p.erase("swiglu_clamp_value"); }));
  CHECK(misread([](HostTensors& in, Params&) {  // every group of MXFP4 weights a step larger
    if (!in.contains("w2_shift")) return;
    HostTensor& shifts = in["w2_shift"];
    for (int64_t i = 0; i < shifts.size(); ++i) shifts.set_bits(i, shifts.bits(i) + 1);
  }));
  CHECK(misread([](HostTensors& in, Params&) {  // all weights 1
    HostTensor& weights = in["topk_weights"];
    for (int64_t i = 0; i < weights.size(); ++i) weights.set_value(i, 1);
  }));
  CHECK(misread([](HostTensors& in, Params&) {  // up, then gate
    HostTensor& w = in["w13"];
    const HostTensor before = w;
    const int64_t half = w.shape()[1] * w.shape()[2] / 2;
    for (int64_t i = 0; i < w.size(); ++i) {
      w.set_bits(i, before.bits(i / half % 2 == 0 ? i + half : i - half));
    }
  }));
  CHECK(misread([](HostTensors& in, Params&) {  // the experts of the token before
    HostTensor& ids = in["topk_idx"];
    const int64_t topk = ids.shape()[1];
    for (int64_t i = ids.size() - 1; i >= topk; --i) ids.set_bits(i, ids.bits(i - topk));
  }));
}

TEST_CASE("moe_forward explains wrong arguments", "[moe_forward][errors]") {
  const HostTensors inputs = {{"x", HostTensor(DType::bf16, {3, 128})},
                              {"topk_idx", HostTensor(DType::i32, {3, 2})},
                              {"topk_weights", HostTensor(DType::f32, {3, 2})},
                              {"w13", HostTensor(DType::e4m3, {2, 256, 128})},
                              {"w13_sf", HostTensor(DType::f32, {2, 2, 1})},
                              {"w2", HostTensor(DType::e4m3, {2, 128, 128})},
                              {"w2_sf", HostTensor(DType::f32, {2, 1, 1})}};
  CHECK(outputs_error(kOp, inputs, {}) == "no error");
  const auto error_with = [&](HostTensors in, const std::string& name, HostTensor wrong,
                              const Params& params = {}) {
    in[name] = std::move(wrong);
    return outputs_error(kOp, in, params);
  };
  CHECK(error_with(inputs, "w2", HostTensor(DType::e4m3, {2, 128, 256})) ==
        "tessera: moe_forward: argument 'w2' has the wrong shape\n"
        "  expected  [2, 128, 128] = [E, H, I]   (I = 128)\n"
        "  got       e4m3[2, 128, 256]");
  CHECK(error_with(inputs, "w2_sf", HostTensor(DType::f32, {2, 1, 2})) ==
        "tessera: moe_forward: argument 'w2_sf' has the wrong shape\n"
        "  expected  [2, 1, 1] = a scale for each 128 x 128   (I = 128)\n"
        "  got       f32[2, 1, 2]");
  CHECK(error_with(inputs, "w2", HostTensor(DType::u8, {2, 2, 1, 4096})) ==
        "tessera: moe_forward: argument 'w2' has the wrong dtype\n"
        "  expected  that of 'w13'\n"
        "  got       u8[2, 2, 1, 4096]");
  CHECK(error_with(inputs, "w13", HostTensor(DType::e4m3, {2, 257, 128})) ==
        "tessera: moe_forward: argument 'w13' has the wrong shape\n"
        "  expected  [2, 256, 128] = [E, 2I, H]   (I = 128)\n"
        "  got       e4m3[2, 257, 128]");
  for (const Params& params :
       {Params{{"activation", std::string("bf16")}}, Params{{"num_per_channels", int64_t{32}}}}) {
    CHECK(outputs_error(kOp, inputs, params).find("e4m3 weights take") != std::string::npos);
  }
  HostTensors packed = inputs;
  packed["w13"] = HostTensor(DType::u8, {2, 4, 1, 4096});
  packed["w13_shift"] = HostTensor(DType::u8, {2, 4, 1, 64, 4});
  packed["w13_sf"] = HostTensor(DType::f32, {2, 256, 1});
  packed["w2"] = HostTensor(DType::u8, {2, 2, 1, 4096});
  packed["w2_shift"] = HostTensor(DType::u8, {2, 2, 1, 64, 4});
  packed["w2_sf"] = HostTensor(DType::f32, {2, 128});
  CHECK(outputs_error(kOp, packed, {}) == "no error");
  CHECK(outputs_error(kOp, packed, {{"activation", std::string("bf16")}}) ==
        "tessera: moe_forward: argument 'w13' has the wrong shape\n"
        "  expected  [2, 4, 2, 2048] = mxfp4_prepack of [E, 2I, H] for bf16   (I = 128)\n"
        "  got       u8[2, 4, 1, 4096]");
  CHECK(error_with(packed, "w2_sf", HostTensor(DType::f32, {2, 128, 2})) ==
        "tessera: moe_forward: argument 'w2_sf' has the wrong shape\n"
        "  expected  [2, 128, 1] = a scale for each row and 128 columns   (I = 128)\n"
        "  got       f32[2, 128, 2]");
  packed.erase("w2_shift");
  CHECK(outputs_error(kOp, packed, {}).find("w2_shift") != std::string::npos);
  CHECK(outputs_error(kOp, inputs, {{"swiglu_clamp_value", 0.0}}).find("swiglu_clamp_value") !=
        std::string::npos);
}
