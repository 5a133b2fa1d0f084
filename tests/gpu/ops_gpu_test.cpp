// The ops of the library on the GPU: the cases of the executor tests, then sizes of models and
// offsets beyond 2^31.

#include "kernels/op.h"
#include "tests/runtime/long_tests.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/chain.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

const std::map<std::string, std::vector<OpCase> (*)()> kCases = {
    {"transpose", transpose_cases},
    {"batched_transpose", batched_transpose_cases},
    {"topk_gate", topk_gate_cases},
    {"topk_sum_and_topk_group_idx", topk_sum_and_topk_group_idx_cases},
    {"top2_sum_gate", top2_sum_gate_cases},
    {"normalize_weight", normalize_weight_cases},
    {"mask_indices_by_tp", mask_indices_by_tp_cases},
    {"inplace_unique_group_indices", inplace_unique_group_indices_cases},
    {"group_count", group_count_cases},
    {"aux_fi", aux_fi_cases},
    {"get_fused_mapping", get_fused_mapping_cases},
    {"expand_to_fused", expand_to_fused_cases},
    {"expand_to_fused_with_sf", expand_to_fused_with_sf_cases},
    {"reduce_fused", reduce_fused_cases},
    {"fused_weight", fused_weight_cases},
    {"engram_gate_fwd", engram_gate_fwd_cases},
    {"engram_gate_bwd", engram_gate_bwd_cases},
    {"grad_w_reduce", grad_w_reduce_cases},
    {"engram_hash", engram_hash_cases},
    {"engram_make_offsets", engram_make_offsets_cases},
    {"per_token_cast_with_sf_only", per_token_cast_with_sf_only_cases},
    {"per_token_cast_with_precomputed_sf", per_token_cast_with_precomputed_sf_cases},
    {"per_block_cast", per_block_cast_cases},
    {"per_block_cast_with_sf_only", per_block_cast_with_sf_only_cases},
    {"per_block_cast_with_precomputed_sf", per_block_cast_with_precomputed_sf_cases},
    {"per_block_cast_lossless", per_block_cast_lossless_cases},
    {"unpack_from_e2m1fn_x2", unpack_from_e2m1fn_x2_cases},
    {"cast_back", cast_back_cases},
    {"per_token_cast_back", per_token_cast_back_cases},
    {"per_token_cast_to_e5m6", per_token_cast_to_e5m6_cases},
    {"per_channel_cast", per_channel_cast_cases},
    {"per_channel_cast_fused", per_channel_cast_fused_cases},
    {"per_channel_cast_and_transpose", per_channel_cast_and_transpose_cases},
    {"swiglu_forward_and_per_token_cast", swiglu_forward_and_per_token_cast_cases},
    {"swiglu_backward_and_per_token_cast", swiglu_backward_and_per_token_cast_cases},
    {"swiglu_forward_and_per_channel_cast_and_transpose",
     swiglu_forward_and_per_channel_cast_cases},
    {"swiglu_forward_and_per_channel_cast", swiglu_forward_and_per_channel_cast_cases},
    {"cast_back_e5m6", cast_back_e5m6_cases},
    {"expand_to_mhc_fwd", expand_to_mhc_fwd_cases},
    {"expand_to_mhc_bwd", expand_to_mhc_bwd_cases},
    {"pre_split_mixes_fwd", pre_split_mixes_fwd_cases},
    {"sinkhorn_fwd", sinkhorn_fwd_cases},
    {"pre_apply_mix_fwd", pre_apply_mix_fwd_cases},
    {"post_fwd", post_fwd_cases},
    {"sinkhorn_bwd", sinkhorn_bwd_cases},
    {"post_bwd", post_bwd_cases},
    {"norm_fn_fwd", norm_fn_fwd_cases},
    {"norm_fn_bwd", norm_fn_bwd_cases},
    {"pre_big_fuse", pre_big_fuse_cases},
    {"head_compute_mix_fwd", head_compute_mix_fwd_cases},
    {"round_to_tf32", round_to_tf32_cases},
    {"pre_apply_mix_bwd", pre_apply_mix_bwd_cases},
    {"pre_split_mixes_bwd", pre_split_mixes_bwd_cases},
    {"head_compute_mix_bwd", head_compute_mix_bwd_cases},
    {"multilayer_recompute", multilayer_recompute_cases},
    {"per_token_cast", per_token_cast_cases},
    {"engram_fwd", engram_fwd_cases},
    {"engram_bwd", engram_bwd_cases},
    {"mhc_pre_fwd", mhc_pre_fwd_cases},
    {"mhc_pre_bwd", mhc_pre_bwd_cases},
    {"mhc_head_fwd", mhc_head_fwd_cases},
    {"mhc_head_bwd", mhc_head_bwd_cases},
};

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
  for (const kernels::OpInfo& op : kernels::ops()) {
    DYNAMIC_SECTION(op.name) {
      REQUIRE(kCases.count(op.name) == 1);
      check_cases(op.name, kCases.at(op.name)());
    }
  }
}

// TESSERA_LONG_TESTS=1 takes all of them, some with most of a minute in the reference; else the
// smaller ones.
TEST_CASE("what is measured equals its reference", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  constexpr int64_t kSmall = int64_t{1} << 25;  // bytes of traffic
  for (const kernels::OpInfo& op : kernels::ops()) {
    DYNAMIC_SECTION(op.name) {
      for (const kernels::BenchCase& measured : op.bench) {
        DYNAMIC_SECTION(measured.label) {
          if (measured.bytes > kSmall && !long_tests()) {
            WARN(op.name << " " << measured.label << ": left out without TESSERA_LONG_TESTS=1");
            continue;
          }
          const OpCase own = kCases.at(op.name)().front();
          OpCase test = case_of(measured);
          test.tolerance = own.tolerance;
          test.tolerances = own.tolerances;
          test.quantised = own.quantised;
          check_cases(op.name, {test});
        }
      }
    }
  }
}

TEST_CASE("ops equal their references at the sizes of models", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  SECTION("transpose") {
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases("transpose",
                {one_tensor("8064 x 7168, pitch 14336", "x",
                            random_tensor(dtype, {8064, 7168}, {14336, 1}, Values::bits, 1))});
  }
  SECTION("batched_transpose") {
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases(
        "batched_transpose",
        {one_tensor("8 x 4032 x 576", "x", random_tensor(dtype, {8, 4032, 576}, Values::bits, 2))});
  }
  SECTION("topk_gate") {
    const kernels::Params params = {{"num_topk", int64_t{8}}};
    check_cases("topk_gate",
                {one_tensor("8001 x 256", "scores",
                            random_tensor(DType::f32, {8001, 256}, Values::normal, 3), params)});
  }
  SECTION("per_token_cast") {
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
  model.label = "1200 x 4 x 7168";  // more than L2 holds, so that norm_fn_fwd streams it
  model.inputs["residual"] = random_tensor(DType::bf16, {1200, 4, 7168}, Values::normal, 7);
  model.inputs["fn"] = random_tensor(DType::f32, {24, 4 * 7168}, Values::uniform, 8);
  cases.push_back(model);
  const CaseReport report = compare_with_chain("pre_big_fuse", cases, Device::cuda(0));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed > 0);
}

TEST_CASE("offsets beyond 2^31 elements", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  // Few rows, far apart: the storage is large, the logical tensor is not.
  SECTION("transpose") {
    const int64_t pitch = 40'000'000;  // 64 rows end beyond 2^31
    check_cases("transpose",
                {one_tensor("64 x 256, pitch 4e7", "x",
                            random_tensor(DType::u8, {64, 256}, {pitch, 1}, Values::bits, 5))});
  }
  SECTION("per_token_cast") {
    const int64_t pitch = 800'000'000;
    const kernels::Params params = {{"format", std::string("e4m3")},
                                    {"num_per_channels", int64_t{128}}};
    check_cases(
        "per_token_cast",
        {one_tensor("4 x 512, pitch 8e8", "x",
                    random_tensor(DType::bf16, {4, 512}, {pitch, 1}, Values::normal, 6), params)});
  }
}
