// pre_big_fuse_and_norm and mhc_boundary on the executor: the references, the chains of ops that they equal, tokens that do not
// see each other, the mistakes that the cases catch, what bad calls are told.

#include "tests/reference/mhc_boundary.h"

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/jit/target.h"
#include "kernels/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kOp = "mhc_boundary", kNormed = "pre_big_fuse_and_norm";

HostTensors run(const std::string& op, const HostTensors& inputs, const Params& params) {
  return op_runner(op, Device::cpu())(inputs, params);
}

/// The tensors of these names.
HostTensors only(const HostTensors& from, const std::vector<const char*>& names) {
  HostTensors some;
  for (const char* name : names) {
    if (from.contains(name)) some[name] = from.at(name);
  }
  return some;
}

Params only_params(const Params& from, const std::vector<const char*>& names) {
  Params some;
  for (const char* name : names) {
    if (from.contains(name)) some[name] = from.at(name);
  }
  return some;
}

/// pre_big_fuse and a norm one after the other.
HostTensors normed_by_parts(const HostTensors& in, const Params& params) {
  const HostTensors mixed =
      run("pre_big_fuse", only(in, {"residual", "fn", "scale", "base", "norm_weight"}),
          only_params(params, {"norm_eps", "pre_eps", "sinkhorn_eps", "post_mult_value",
                               "sinkhorn_repeat", "n_splits"}));
  HostTensors out = mixed;
  HostTensors row = only(in, {"weight"});
  row["x"] = mixed.at("layer_input");
  const bool casts = params.contains("format");
  Params of_norm = casts ? only_params(params, {"out_scale", "num_per_channels", "round_sf",
                                                "sf_layout", "save_bf16"})
                         : only_params(params, {"out_scale"});
  of_norm["norm_eps"] = params.at("rms_eps");
  for (auto& [name, tensor] :
       run(casts ? "norm_fwd_and_per_token_cast" : "norm_fwd", row, of_norm)) {
    out[name] = tensor;
  }
  if (!casts && params.contains("save_bf16")) out["out_bf16"] = out.at("out");
  return out;
}

/// The parts of mhc_boundary one after another.
HostTensors by_parts(const HostTensors& in, const Params& params) {
  HostTensors next = in;
  next["residual"] =
      run("post_fwd", only(in, {"x", "residual", "post_mix", "comb_mix"}), {}).at("out");
  HostTensors out = normed_by_parts(next, params);
  out["next_residual"] = next.at("residual");
  out["next_post_mix"] = out.at("post_mix");
  out["next_comb_mix"] = out.at("comb_mix");
  return out;
}

/// The outputs of the op that differ from those of its parts.
std::string differences(const std::string& op, const OpCase& test) {
  const HostTensors parts =
      op == kOp ? by_parts(test.inputs, test.params) : normed_by_parts(test.inputs, test.params);
  std::string names;
  for (const auto& [name, tensor] : run(op, test.inputs, test.params)) {
    if (parts.at(name).raw() != tensor.raw()) names += name + " ";
  }
  return names;
}

}  // namespace

TEST_CASE("mhc_boundary equals its reference on the executor", "[mhc_boundary][slow]") {
  const auto cases = mhc_boundary_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("mhc_boundary is its parts, bit for bit", "[mhc_boundary][slow]") {
  for (const char* target : {"sm_90a", "sm_80"}) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    for (const OpCase& test : mhc_boundary_cases()) {
      CAPTURE(target, test.label);
      CHECK(differences(kOp, test).empty());
    }
  }
}

TEST_CASE("pre_big_fuse_and_norm equals its reference on the executor",
          "[pre_big_fuse_and_norm][slow]") {
  const auto cases = pre_big_fuse_and_norm_cases();
  const CaseReport report = run_cases(kNormed, cases, op_runner(kNormed, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("pre_big_fuse_and_norm is its parts, bit for bit", "[pre_big_fuse_and_norm][slow]") {
  for (const char* target : {"sm_90a", "sm_80"}) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    for (const OpCase& test : pre_big_fuse_and_norm_cases()) {
      CAPTURE(target, test.label);
      CHECK(differences(kNormed, test).empty());
    }
  }
}

TEST_CASE("a token of NaN streams spoils no other token's norm", "[pre_big_fuse_and_norm]") {
  OpCase test = pre_big_fuse_and_norm_cases().front();  // 13 tokens, 8 to a block
  const HostTensors clean = run(kNormed, test.inputs, test.params);
  HostTensor& residual = test.inputs.at("residual");
  const int64_t row = residual.size() / 13;
  residual.set_value(6 * row + 100, std::nan(""));
  residual.set_value(12 * row, std::numeric_limits<double>::infinity());
  const HostTensors got = run(kNormed, test.inputs, test.params);
  CHECK(differences(kNormed, test).empty());
  for (const char* name : {"out", "post_mix", "comb_mix"}) {
    const int64_t each = got.at(name).size() / 13;
    for (int64_t i = 0; i < got.at(name).size(); ++i) {
      const int64_t token = i / each;
      if (token == 6 || token == 12) continue;
      REQUIRE(got.at(name).bits(i) == clean.at(name).bits(i));
    }
  }
}

TEST_CASE("a residual at an odd address gives the same norm", "[pre_big_fuse_and_norm]") {
  const OpCase test = pre_big_fuse_and_norm_cases().front();
  const HostTensors aligned = run(kNormed, test.inputs, test.params);
  const HostTensor& residual = test.inputs.at("residual");
  HostTensor moved(DType::bf16, {residual.size() + 1});
  for (int64_t i = 0; i < residual.size(); ++i) moved.set_bits(i + 1, residual.bits(i));
  HostTensors out = {{"post_mix", HostTensor(DType::f32, {13, 4})},
                     {"comb_mix", HostTensor(DType::f32, {13, 4, 4})},
                     {"out", HostTensor(DType::bf16, {13, 256})}};
  kernels::PreBigFuseAndNorm call{
      .residual =
          TensorView(static_cast<std::byte*>(moved.view().data) + 2, DType::bf16, residual.shape()),
      .fn = test.inputs.at("fn").view(),
      .scale = test.inputs.at("scale").view(),
      .base = test.inputs.at("base").view(),
      .norm_weight = test.inputs.at("norm_weight").view(),
      .weight = test.inputs.at("weight").view(),
      .post_mix = out.at("post_mix").view(),
      .comb_mix = out.at("comb_mix").view(),
      .out = out.at("out").view(),
      .n_splits = 1,
      .rms_eps = 1e-6};
  HostTensor workspace(DType::f32, kernels::workspace_of(call).shape);
  call.workspace = workspace.view();
  kernels::pre_big_fuse_and_norm(call, {});
  for (const auto& [name, tensor] : out) {
    CAPTURE(name);
    CHECK(tensor.raw() == aligned.at(name).raw());
  }
}

TEST_CASE("a token of mhc_boundary depends on no other token", "[mhc_boundary]") {
  const OpCase test = mhc_boundary_cases().front();
  const HostTensors all = run(kOp, test.inputs, test.params);
  for (const int64_t token : {0, 7, 12}) {
    HostTensors one = test.inputs;
    for (const char* name : {"x", "residual", "post_mix", "comb_mix"}) {
      const HostTensor& from = test.inputs.at(name);
      Dims shape = from.shape();
      const int64_t row = from.size() / shape[0];
      shape[0] = 1;
      HostTensor part(from.dtype(), shape);
      for (int64_t i = 0; i < row; ++i) part.set_bits(i, from.bits(token * row + i));
      one[name] = std::move(part);
    }
    for (const auto& [name, tensor] : run(kOp, one, test.params)) {
      CAPTURE(token, name);
      int64_t wrong = 0;
      for (int64_t i = 0; i < tensor.size(); ++i) {
        wrong += tensor.bits(i) == all.at(name).bits(token * tensor.size() + i) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the mhc_boundary tests catch every mutant", "[mhc_boundary][mutants][slow]") {
  std::vector<OpCase> cases = mhc_boundary_cases();
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("x").size() > 60000; });
  const auto misread = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(kOp, cases, misled(kOp, mistake));
  };
  CHECK_FALSE(misread([](HostTensors&, Params&) {}));
  for (const char* name : {"weight", "norm_weight"}) {
    CAPTURE(name);
    CHECK(misread([&](HostTensors& in, Params&) { in.erase(name); }));
  }
  for (const char* name :
       {"norm_eps", "pre_eps", "sinkhorn_eps", "post_mult_value", "sinkhorn_repeat", "out_scale"}) {
    CAPTURE(name);
    CHECK(misread([&](HostTensors&, Params& params) { params.erase(name); }));
  }
  CHECK(misread([](HostTensors&, Params& params) { params["rms_eps"] = 0.25; }));
  CHECK(misread([](HostTensors& in, Params&) {  // the mixes of the streams written, not read
    HostTensor& comb = in["comb_mix"];
    const HostTensor before = comb;
    for (int64_t i = 0; i < comb.size(); ++i) {
      comb.set_bits(i, before.bits(i / 16 * 16 + i % 4 * 4 + i / 4 % 4));
    }
  }));
  CHECK(is_caught(kOp, cases, spoiled(kOp, [](const HostTensors& in, HostTensors& out) {
                    out["next_residual"] = in.at("residual");  // of the layer before
                  })));
}

TEST_CASE("the pre_big_fuse_and_norm tests catch every mutant",
          "[pre_big_fuse_and_norm][mutants][slow]") {
  std::vector<OpCase> cases = pre_big_fuse_and_norm_cases();
  std::erase_if(cases,
                [](const OpCase& test) { return test.inputs.at("residual").size() > 160000; });
  const auto misread = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(kNormed, cases, misled(kNormed, mistake));
  };
  CHECK_FALSE(misread([](HostTensors&, Params&) {}));
  for (const char* name : {"weight", "norm_weight"}) {
    CAPTURE(name);
    CHECK(misread([&](HostTensors& in, Params&) { in.erase(name); }));
  }
  for (const char* name :
       {"norm_eps", "pre_eps", "sinkhorn_eps", "post_mult_value", "sinkhorn_repeat", "out_scale"}) {
    CAPTURE(name);
    CHECK(misread([&](HostTensors&, Params& params) { params.erase(name); }));
  }
  CHECK(misread([](HostTensors&, Params& params) { params["rms_eps"] = 0.25; }));
  CHECK(is_caught(kNormed, cases, spoiled(kNormed, [](const HostTensors&, HostTensors& out) {
                    if (out.contains("layer_input")) out["layer_input"] = out.at("out");
                  })));
}

TEST_CASE("pre_big_fuse_and_norm explains wrong arguments", "[pre_big_fuse_and_norm][errors]") {
  const auto told = [](int64_t streams, int64_t hidden, Params params) {
    const int64_t entries = streams * (streams + 2);
    params.try_emplace("rms_eps", 1e-6);
    return outputs_error(kNormed,
                         {{"residual", HostTensor(DType::bf16, {5, streams, hidden})},
                          {"fn", HostTensor(DType::f32, {entries, streams * hidden})},
                          {"scale", HostTensor(DType::f32, {3})},
                          {"base", HostTensor(DType::f32, {entries})}},
                         params);
  };
  CHECK(told(4, 256, {}) == "no error");
  CHECK(told(5, 256, {}) ==
        "tessera: pre_big_fuse_and_norm: argument 'residual': so many streams are not supported\n"
        "  expected  n <= 4\n"
        "  got       n = 5 from residual dim 1");
  CHECK(told(4, 8448, {}) ==
        "tessera: pre_big_fuse_and_norm: argument 'residual': rows this long are not supported\n"
        "  expected  H <= 8192\n"
        "  got       H = 8448 from residual dim 2");
  CHECK(
      told(1, 128, {}) ==
      "tessera: pre_big_fuse_and_norm: argument 'residual': a row has the wrong number of columns\n"
      "  expected  n*H % 256 = 0\n"
      "  got       n = 1 from residual dim 1, H = 128 from residual dim 2");
  CHECK(
      told(4, 256, {{"format", std::string("e4m3")}, {"sf_layout", std::string("packed_ue8m0")}}) ==
      "tessera: pre_big_fuse_and_norm: argument 'sf_layout': packed_ue8m0 scales are powers of "
      "two\n"
      "  expected  round_sf where sf_layout = packed_ue8m0\n"
      "  got       round_sf = false, sf_layout = packed_ue8m0");
}

TEST_CASE("mhc_boundary explains wrong arguments", "[mhc_boundary][errors]") {
  const auto inputs = [](int64_t streams, int64_t hidden) {
    return HostTensors{{"x", HostTensor(DType::bf16, {5, hidden})},
                       {"residual", HostTensor(DType::bf16, {5, streams, hidden})},
                       {"post_mix", HostTensor(DType::f32, {5, streams})},
                       {"comb_mix", HostTensor(DType::f32, {5, streams, streams})},
                       {"fn", HostTensor(DType::f32, {streams * (streams + 2), streams * hidden})},
                       {"scale", HostTensor(DType::f32, {3})},
                       {"base", HostTensor(DType::f32, {streams * (streams + 2)})}};
  };
  const auto told = [](const HostTensors& given, Params params) {
    params.try_emplace("rms_eps", 1e-6);
    return outputs_error(kOp, given, params);
  };
  CHECK(told(inputs(4, 256), {}) == "no error");
  CHECK(told(inputs(3, 256), {}) ==
        "tessera: mhc_boundary: argument 'residual': so many streams are not supported\n"
        "  expected  n = 4\n"
        "  got       n = 3 from residual dim 1");
  CHECK(told(inputs(4, 128), {}) ==
        "tessera: mhc_boundary: argument 'x': rows of this length are not supported\n"
        "  expected  H % 256 = 0\n"
        "  got       H = 128 from x dim 1");
  CHECK(told(inputs(4, 256),
             {{"format", std::string("e4m3")}, {"sf_layout", std::string("packed_ue8m0")}}) ==
        "tessera: mhc_boundary: argument 'sf_layout': packed_ue8m0 scales are powers of two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0");
  HostTensors other = inputs(4, 256);
  other["post_mix"] = HostTensor(DType::f32, {4, 4});
  CHECK(told(other, {}) ==
        "tessera: mhc_boundary: argument 'post_mix' has the wrong shape\n"
        "  expected  f32[5, 4]   (T = 5 from x dim 0; n = 4 from residual dim 1)\n"
        "  got       f32[4, 4] on cpu");
}
