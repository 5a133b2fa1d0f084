// The ops of the library on the GPU: the cases of the executor tests, then sizes of models and
// offsets beyond 2^31.

#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/mhc_chain.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<OpCase> cases_of(const std::string& op) {
  if (op == "transpose") return transpose_cases();
  if (op == "batched_transpose") return batched_transpose_cases();
  if (op == "topk_gate") return topk_gate_cases();
  if (op == "top2_sum_gate") return top2_sum_gate_cases();
  if (op == "get_fused_mapping") return get_fused_mapping_cases();
  if (op == "expand_to_fused_with_sf") return expand_to_fused_with_sf_cases();
  if (op == "reduce_fused") return reduce_fused_cases();
  if (op == "engram_gate_fwd") return engram_gate_fwd_cases();
  if (op == "engram_hash") return engram_hash_cases();
  if (op == "per_token_cast_with_sf_only") return per_token_cast_with_sf_only_cases();
  if (op == "per_token_cast_with_precomputed_sf") return per_token_cast_with_precomputed_sf_cases();
  if (op == "cast_back") return cast_back_cases();
  if (op == "per_token_cast_back") return per_token_cast_back_cases();
  if (op == "per_token_cast_to_e5m6") return per_token_cast_to_e5m6_cases();
  if (op == "per_channel_cast_and_transpose") return per_channel_cast_and_transpose_cases();
  if (op == "swiglu_forward_and_per_token_cast") return swiglu_forward_and_per_token_cast_cases();
  if (op == "cast_back_e5m6") return cast_back_e5m6_cases();
  if (op == "expand_to_mhc_fwd") return expand_to_mhc_fwd_cases();
  if (op == "pre_split_mixes_fwd") return pre_split_mixes_fwd_cases();
  if (op == "sinkhorn_fwd") return sinkhorn_fwd_cases();
  if (op == "pre_apply_mix_fwd") return pre_apply_mix_fwd_cases();
  if (op == "post_fwd") return post_fwd_cases();
  if (op == "sinkhorn_bwd") return sinkhorn_bwd_cases();
  if (op == "post_bwd") return post_bwd_cases();
  if (op == "norm_fn_fwd") return norm_fn_fwd_cases();
  if (op == "pre_big_fuse") return pre_big_fuse_cases();
  return per_token_cast_cases();
}

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cuda(0)));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed > 0);
}

OpCase one_tensor(const std::string& label, const std::string& name, HostTensor tensor,
                  kernels::Params params = {}) {
  OpCase test;
  test.label = label;
  test.inputs[name] = std::move(tensor);
  test.params = std::move(params);
  return test;
}

}  // namespace

TEST_CASE("ops equal their references on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const std::string op = GENERATE(
      "transpose", "batched_transpose", "topk_gate", "top2_sum_gate", "get_fused_mapping",
      "expand_to_fused_with_sf", "reduce_fused", "engram_gate_fwd", "engram_hash", "per_token_cast",
      "per_token_cast_with_sf_only", "per_token_cast_with_precomputed_sf", "cast_back",
      "per_token_cast_back", "per_token_cast_to_e5m6", "cast_back_e5m6",
      "per_channel_cast_and_transpose", "swiglu_forward_and_per_token_cast", "expand_to_mhc_fwd",
      "pre_split_mixes_fwd", "sinkhorn_fwd", "sinkhorn_bwd", "pre_apply_mix_fwd", "post_fwd",
      "post_bwd", "norm_fn_fwd", "pre_big_fuse");
  if (!op_exists(op)) TESSERA_SKIP("no op " + op);
  check_cases(op, cases_of(op));
}

TEST_CASE("ops equal their references at the sizes of models", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  SECTION("transpose") {
    if (!op_exists("transpose")) TESSERA_SKIP("no op transpose");
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases("transpose",
                {one_tensor("8064 x 7168, pitch 14336", "x",
                            random_tensor(dtype, {8064, 7168}, {14336, 1}, Values::bits, 1))});
  }
  SECTION("batched_transpose") {
    if (!op_exists("batched_transpose")) TESSERA_SKIP("no op batched_transpose");
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases(
        "batched_transpose",
        {one_tensor("8 x 4032 x 576", "x", random_tensor(dtype, {8, 4032, 576}, Values::bits, 2))});
  }
  SECTION("topk_gate") {
    if (!op_exists("topk_gate")) TESSERA_SKIP("no op topk_gate");
    const kernels::Params params = {{"num_topk", int64_t{8}}};
    check_cases("topk_gate",
                {one_tensor("8001 x 256", "scores",
                            random_tensor(DType::f32, {8001, 256}, Values::normal, 3), params)});
  }
  SECTION("per_token_cast") {
    if (!op_exists("per_token_cast")) TESSERA_SKIP("no op per_token_cast");
    const bool round_sf = GENERATE(false, true);
    const kernels::Params params = {{"format", std::string("e4m3")},
                                    {"num_per_channels", int64_t{128}},
                                    {"round_sf", round_sf}};
    check_cases("per_token_cast",
                {one_tensor("4001 x 7168", "x",
                            random_tensor(DType::bf16, {4001, 7168}, Values::normal, 4), params)});
  }
}

TEST_CASE("pre_big_fuse equals the chain bit for bit on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  std::vector<OpCase> cases = pre_big_fuse_cases();
  OpCase model = cases.front();
  model.label = "1100 x 4 x 7168";
  model.inputs["residual"] = random_tensor(DType::bf16, {1100, 4, 7168}, Values::normal, 7);
  model.inputs["fn"] = random_tensor(DType::f32, {24, 4 * 7168}, Values::uniform, 8);
  cases.push_back(model);
  const CaseReport report = compare_with_pre_chain(cases, Device::cuda(0));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed > 0);
}

TEST_CASE("offsets beyond 2^31 elements", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  // Few rows, far apart: the storage is large, the logical tensor is not.
  SECTION("transpose") {
    if (!op_exists("transpose")) TESSERA_SKIP("no op transpose");
    const int64_t pitch = 40'000'000;  // 64 rows end beyond 2^31
    check_cases("transpose",
                {one_tensor("64 x 256, pitch 4e7", "x",
                            random_tensor(DType::u8, {64, 256}, {pitch, 1}, Values::bits, 5))});
  }
  SECTION("per_token_cast") {
    if (!op_exists("per_token_cast")) TESSERA_SKIP("no op per_token_cast");
    const int64_t pitch = 800'000'000;
    const kernels::Params params = {{"format", std::string("e4m3")},
                                    {"num_per_channels", int64_t{128}}};
    check_cases(
        "per_token_cast",
        {one_tensor("4 x 512, pitch 8e8", "x",
                    random_tensor(DType::bf16, {4, 512}, {pitch, 1}, Values::normal, 6), params)});
  }
}
