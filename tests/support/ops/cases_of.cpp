// The cases of each op by its name.

#include <map>
#include <stdexcept>

#include "tests/support/ops/attention_cases.h"
#include "tests/support/ops/mla_cases.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {
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
    {"gemm_bf16", gemm_bf16_cases},
    {"gemm_fp8_block", gemm_fp8_block_cases},
    {"gemm_fp8_grouped", gemm_fp8_grouped_cases},
    {"gemm_fp8_masked", gemm_fp8_masked_cases},
    {"mxfp4_prepack", mxfp4_prepack_cases},
    {"mxfp4_decode", mxfp4_decode_cases},
    {"gemm_mxfp4", gemm_mxfp4_cases},
    {"gemm_mxfp4_grouped", gemm_mxfp4_grouped_cases},
    {"gemm_mxfp4_masked", gemm_mxfp4_masked_cases},
    {"gemm_fp8_k_grouped", gemm_fp8_k_grouped_cases},
    {"compress_plan", compress_plan_cases},
    {"compress_plan_decode", compress_plan_decode_cases},
    {"compress_fwd", compress_fwd_cases},
    {"compress_state_write", compress_state_write_cases},
    {"compress_decode", compress_decode_cases},
    {"compress_store", compress_store_cases},
    {"compress_decode_store", compress_decode_store_cases},
    {"compress_prefill", compress_prefill_cases},
    {"topk_select", topk_select_cases},
    {"topk_plan", topk_plan_cases},
    {"hash_gate", hash_gate_cases},
    {"mask_padded_topk", mask_padded_topk_cases},
    {"moe_topk_gate_fwd", moe_topk_gate_fwd_cases},
    {"moe_topk_gate_bwd", moe_topk_gate_bwd_cases},
    {"gate_scores_sum", gate_scores_sum_cases},
    {"apply_rotary", apply_rotary_cases},
    {"norm_fwd", norm_fwd_cases},
    {"norm_fwd_and_per_token_cast", norm_fwd_and_per_token_cast_cases},
    {"norm_bwd", norm_bwd_cases},
    {"cast", cast_cases},
    {"per_token_cast_and_cast_back", per_token_cast_and_cast_back_cases},
    {"swiglu_fwd", swiglu_fwd_cases},
    {"swiglu_bwd", swiglu_bwd_cases},
    {"gather_pages", gather_pages_cases},
    {"paged_lengths", paged_lengths_cases},
    {"slot_plan", slot_plan_cases},
    {"moe_plan", moe_plan_cases},
    {"moe_gather_cast", moe_gather_cast_cases},
    {"swiglu_psum_cast", swiglu_psum_cast_cases},
    {"combine_reduce", combine_reduce_cases},
    {"moe_forward", moe_forward_cases},
    {"attention_fwd", attention_fwd_cases},
    {"attention_varlen_fwd", attention_varlen_fwd_cases},
    {"attention_decode", attention_decode_cases},
    {"attention_bwd", attention_bwd_cases},
    {"attention_varlen_bwd", attention_varlen_bwd_cases},
    {"mla_decode", mla_decode_cases},
    {"mla_combine", mla_combine_cases},
};

}  // namespace

std::vector<OpCase> cases_of(const std::string& op) {
  const auto found = kCases.find(op);
  if (found == kCases.end()) {
    throw std::out_of_range("op '" + op +
                            "' has no cases: name them in tests/support/ops/cases_of.cpp");
  }
  return found->second();
}

}  // namespace tessera::test
