// The hyper-connection ops on the executor: the references, then what bad calls are told.

#include <cmath>
#include <filesystem>

#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/golden.h"
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

/// The references of the mixing ops on the recorded cases of a golden folder.
void check_mixing_chains(const std::filesystem::path& folder) {
  int checked = 0;
  for (const std::string& family : golden_families(folder)) {
    for (const GoldenCase& golden : read_golden(folder, family)) {
      if (golden.op != "pre_apply_mix_fwd" && golden.op != "post_fwd") continue;
      INFO(golden.id);
      const HostTensors got = reference::runner(golden.op)(golden.inputs, golden.params);
      CHECK_THAT(got.at("out"), EqualsBits(golden.outputs.at("out")));
      ++checked;
    }
  }
  CHECK(checked > 0);
}

}  // namespace

TEST_CASE("the mixing chains meet the values recorded in the repository bit for bit",
          "[reference][golden][mhc]") {
  check_mixing_chains(golden_in_repository());
}

TEST_CASE("the mixing chains meet the values recorded beside the repository bit for bit",
          "[reference][golden][mhc]") {
  if (const std::string reason = why_no_golden_beside(); !reason.empty()) TESSERA_SKIP(reason);
  check_mixing_chains(golden_beside_repository());
}

TEST_CASE("pre_apply_mix_fwd equals its reference on the executor", "[pre_apply_mix_fwd]") {
  check_cases("pre_apply_mix_fwd", pre_apply_mix_fwd_cases());
}

TEST_CASE("pre_apply_mix_fwd explains wrong arguments", "[pre_apply_mix_fwd][errors]") {
  const auto told = [](HostTensors inputs) {
    return outputs_error("pre_apply_mix_fwd", inputs, {});
  };
  const HostTensor x = some(DType::bf16, {6, 4, 64}), mix = some(DType::f32, {6, 4});
  CHECK(told({{"x", x}, {"mix", mix}}) == "no error");
  CHECK(told({{"x", some(DType::bf16, {4, 64})}, {"mix", mix}}) ==
        "tessera: pre_apply_mix_fwd: argument 'x' has the wrong rank\n"
        "  expected  bf16[T, n, H]\n"
        "  got       bf16[4, 64] on cpu");
  CHECK(
      told({{"x", some(DType::bf16, {2, 3, 4, 64})}, {"mix", mix}}) ==
      "tessera: pre_apply_mix_fwd: argument 'mix' has the wrong rank\n"
      "  expected  f32[2, 3, 4]   (T0 = 2 from x dim 0; T1 = 3 from x dim 1; n = 4 from x dim 2)\n"
      "  got       f32[6, 4] on cpu");
  const std::string streams = told({{"x", x}, {"mix", some(DType::f32, {6, 3})}});
  CHECK(
      streams.starts_with("tessera: pre_apply_mix_fwd: argument 'mix' has the wrong shape\n"
                          "  expected  f32[6, 4]"));
  CHECK(told({{"x", some(DType::bf16, {6, 17, 64})}, {"mix", some(DType::f32, {6, 17})}}) ==
        "tessera: pre_apply_mix_fwd: argument 'x': so many streams are not supported\n"
        "  expected  n <= 16\n"
        "  got       n = 17 from x dim 1");
  CHECK(told({{"x", some(DType::bf16, {6, 0, 64})}, {"mix", some(DType::f32, {6, 0})}}) ==
        "tessera: pre_apply_mix_fwd: argument 'x': there must be a stream\n"
        "  expected  n >= 1\n"
        "  got       n = 0 from x dim 1");
  const std::string alias = run_error("pre_apply_mix_fwd",
                                      {{"x", x.view()},
                                       {"mix", mix.view()},
                                       {"out", TensorView(x.view().data, DType::bf16, {6, 64})}},
                                      {});
  CHECK(alias.starts_with("tessera: pre_apply_mix_fwd: argument 'out' shares memory with 'x'\n"));
}

TEST_CASE("post_fwd equals its reference on the executor", "[post_fwd]") {
  check_cases("post_fwd", post_fwd_cases());
}

TEST_CASE("post_fwd explains wrong arguments", "[post_fwd][errors]") {
  HostTensors inputs;
  inputs["x"] = some(DType::bf16, {6, 64});
  inputs["residual"] = some(DType::bf16, {6, 4, 64});
  inputs["post_mix"] = some(DType::f32, {6, 4});
  inputs["comb_mix"] = some(DType::f32, {6, 4, 4});
  const auto told = [&](const std::string& name, const HostTensor& tensor) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("post_fwd", changed, {});
  };
  CHECK(told("x", inputs["x"]) == "no error");
  CHECK(told("comb_mix", some(DType::f32, {6, 4, 3})) ==
        "tessera: post_fwd: argument 'comb_mix' has the wrong shape\n"
        "  expected  f32[6, 4, 4]   (T = 6 from x dim 0; n = 4 from residual dim 1)\n"
        "  got       f32[6, 4, 3] on cpu");
  CHECK(told("post_mix", some(DType::bf16, {6, 4})) ==
        "tessera: post_fwd: argument 'post_mix' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[6, 4] on cpu");
  CHECK(told("residual", HostTensor(DType::bf16, {6, 4, 64}, {512, 64, 1})) ==
        "tessera: post_fwd: argument 'residual' has the wrong strides\n"
        "  expected  row-major strides [256, 64, 1]\n"
        "  got       bf16[6, 4, 64], strides [512, 64, 1] on cpu");
}

TEST_CASE("expand_to_mhc_fwd equals its reference on the executor", "[expand_to_mhc_fwd]") {
  check_cases("expand_to_mhc_fwd", expand_to_mhc_fwd_cases());
}

TEST_CASE("expand_to_mhc_fwd explains wrong arguments", "[expand_to_mhc_fwd][errors]") {
  const HostTensor x = some(DType::bf16, {6, 64});
  const auto told = [&](kernels::Params params) {
    return outputs_error("expand_to_mhc_fwd", {{"x", x}}, params);
  };
  CHECK(told({}) == "no error");
  CHECK(told({{"mhc_mult", int64_t{0}}}) ==
        "tessera: expand_to_mhc_fwd: parameter 'mhc_mult' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told({{"mhc_mult", int64_t{65537}}}) ==
        "tessera: expand_to_mhc_fwd: argument 'mhc_mult': so many streams are not supported\n"
        "  expected  mhc_mult <= 65536\n"
        "  got       mhc_mult = 65537");
  CHECK(outputs_error("expand_to_mhc_fwd", {{"x", some(DType::bf16, {1, 1, 1, 1, 1, 1, 1, 64})}},
                      {}) ==
        "tessera: expand_to_mhc_fwd: argument 'x': so many token dimensions are not supported\n"
        "  expected  at most 6\n"
        "  got       7");
  const HostTensor out(DType::bf16, {6, 3, 64});
  CHECK(run_error("expand_to_mhc_fwd", {{"x", x.view()}, {"out", out.view()}},
                  {{"mhc_mult", int64_t{4}}}) ==
        "tessera: expand_to_mhc_fwd: argument 'out' has the wrong shape\n"
        "  expected  bf16[6, 4, 64]   (T = 6 from x dim 0; n = 4 = mhc_mult; H = 64 from x dim 1)\n"
        "  got       bf16[6, 3, 64] on cpu");
}

TEST_CASE("sinkhorn_fwd equals its reference on the executor", "[sinkhorn_fwd]") {
  check_cases("sinkhorn_fwd", sinkhorn_fwd_cases());
}

TEST_CASE("sinkhorn_fwd ends with columns that sum to one", "[sinkhorn_fwd]") {
  const HostTensor x = some(DType::f32, {25, 4, 4});
  const HostTensor out = op_runner("sinkhorn_fwd", Device::cpu())({{"x", x}}, {}).at("out");
  for (int64_t t = 0; t < 25; ++t) {
    for (int64_t o = 0; o < 4; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < 4; ++i) sum += out.value(t * 16 + i * 4 + o);
      CHECK(std::fabs(sum - 1) < 2e-6);
    }
  }
}

TEST_CASE("sinkhorn_fwd explains wrong arguments", "[sinkhorn_fwd][errors]") {
  const auto told = [](Dims shape, int64_t repeat) {
    return outputs_error("sinkhorn_fwd", {{"x", some(DType::f32, shape)}}, {{"repeat", repeat}});
  };
  CHECK(told({6, 4, 4}, 45) == "no error");
  CHECK(told({6, 4, 4}, 46) ==
        "tessera: sinkhorn_fwd: parameter 'repeat' is out of range\n"
        "  expected  1 .. 45\n"
        "  got       46");
  CHECK(told({6, 4, 4}, 0) ==
        "tessera: sinkhorn_fwd: parameter 'repeat' has a wrong value\n"
        "  expected  int 1..45\n"
        "  got       0");
  CHECK(told({6, 4, 3}, 10) ==
        "tessera: sinkhorn_fwd: argument 'x' has the wrong shape\n"
        "  expected  f32[T, n, n]\n"
        "  got       f32[6, 4, 3] on cpu");
  CHECK(told({6, 5, 5}, 10) ==
        "tessera: sinkhorn_fwd: argument 'x': so many streams are not supported\n"
        "  expected  n <= 4\n"
        "  got       n = 5 from x dim 1");
}

TEST_CASE("pre_split_mixes_fwd equals its reference on the executor", "[pre_split_mixes_fwd]") {
  check_cases("pre_split_mixes_fwd", pre_split_mixes_fwd_cases());
}

TEST_CASE("pre_split_mixes_fwd explains wrong arguments", "[pre_split_mixes_fwd][errors]") {
  const auto told = [](Dims mixes, int64_t base) {
    return outputs_error("pre_split_mixes_fwd",
                         {{"input_mixes", some(DType::f32, mixes)},
                          {"scale", some(DType::f32, {3})},
                          {"base", some(DType::f32, {base})}},
                         {});
  };
  CHECK(told({6, 24}, 24) == "no error");
  CHECK(told({6, 25}, 25) ==
        "tessera: pre_split_mixes_fwd: argument 'input_mixes' has the wrong number of columns\n"
        "  expected  M = n*(n+2) and n >= 1\n"
        "  got       M = 25 from input_mixes dim 1, n = 4");
  CHECK(told({6, 24}, 23) ==
        "tessera: pre_split_mixes_fwd: argument 'base' has the wrong shape\n"
        "  expected  f32[24]   (M = 24 from input_mixes dim 1)\n"
        "  got       f32[23] on cpu");
  CHECK(told({1, 1, 1, 1, 1, 1, 1, 24}, 24) ==
        "tessera: pre_split_mixes_fwd: argument 'input_mixes': so many token dimensions are not "
        "supported\n"
        "  expected  at most 6\n"
        "  got       7");
}

TEST_CASE("rows that start anywhere in memory are mixed alike", "[mhc]") {
  const int64_t tokens = 3, streams = 4, hidden = 256;
  const HostTensor x = some(DType::bf16, {tokens, streams, hidden});
  const HostTensor mix = some(DType::f32, {tokens, streams});
  const auto want =
      op_runner("pre_apply_mix_fwd", Device::cpu())({{"x", x}, {"mix", mix}}, {}).at("out");
  const kernels::jit::TrapScope traps;
  for (const int64_t shift : {1, 2, 4}) {
    CAPTURE(shift);
    const HostTensor storage(DType::bf16, {x.size() + 8});
    auto* moved = static_cast<uint16_t*>(storage.view().data) + shift;
    for (int64_t i = 0; i < x.size(); ++i) moved[i] = static_cast<uint16_t>(x.bits(i));
    HostTensor out(DType::bf16, {tokens, hidden});
    kernels::find_op("pre_apply_mix_fwd")
        .run({{"x", TensorView(moved, DType::bf16, x.shape())},
              {"mix", mix.view()},
              {"out", out.view()}},
             {}, nullptr);
    CHECK_THAT(out, EqualsBits(want));
  }
}
