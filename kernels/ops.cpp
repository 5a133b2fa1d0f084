// Written from the signatures of the ops; a test compares, and with TESSERA_APPROVE=1 writes it again.
// clang-format off

#include "kernels/ops.h"

#include "kernels/all_ops.h"
#include "kernels/op_call.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {

std::string_view name(ScoringFunc value) {
  constexpr std::string_view kWords[] = {"sigmoid", "sqrtsoftplus", "softmax"};
  return kWords[static_cast<size_t>(value)];
}

void topk_gate(const TopkGate& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(topk_gate_op));
  call_op(op,
          {{"scores", call.scores},
           {"topk_idx", call.topk_idx}},
          {{"num_topk", call.num_topk}},
          stream);
}

void top2_sum_gate(const Top2SumGate& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(top2_sum_gate_op));
  call_op(op,
          {{"logits", call.logits},
           {"bias", call.bias},
           {"mask", call.mask},
           {"fix_routing_mask", call.fix_routing_mask},
           {"to_physical_map", call.to_physical_map},
           {"logical_count", call.logical_count},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"unmapped_topk_idx", call.unmapped_topk_idx}},
          {{"num_topk", call.num_topk},
           {"num_topk_groups", call.num_topk_groups},
           {"num_groups", call.num_groups},
           {"use_shared_as_routed", call.use_shared_as_routed},
           {"num_shared_experts", call.num_shared_experts},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"ep_rank", call.ep_rank},
           {"num_ep_ranks", call.num_ep_ranks},
           {"tp_rank", call.tp_rank},
           {"num_tp_ranks", call.num_tp_ranks},
           {"scoring_func", call.scoring_func}},
          stream);
}

void get_fused_mapping(const GetFusedMapping& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(get_fused_mapping_op));
  call_op(op,
          {{"topk_idx", call.topk_idx},
           {"pos_to_expert", call.pos_to_expert},
           {"pos_to_token", call.pos_to_token},
           {"pos_to_token_topk", call.pos_to_token_topk},
           {"token_topk_to_pos", call.token_topk_to_pos},
           {"expert_start", call.expert_start},
           {"expert_end", call.expert_end},
           {"num_tokens_per_expert", call.num_tokens_per_expert}},
          {{"num_experts", call.num_experts},
           {"alignment", call.alignment},
           {"num_expanded_tokens", call.num_expanded_tokens},
           {"force_no_sync", call.force_no_sync}},
          stream);
}

void expand_to_fused_with_sf(const ExpandToFusedWithSf& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(expand_to_fused_with_sf_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"token_topk_to_pos", call.token_topk_to_pos},
           {"pos_to_expert", call.pos_to_expert},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_channels", call.num_per_channels},
           {"sf_layout", call.sf_layout}},
          stream);
}

void reduce_fused(const ReduceFused& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(reduce_fused_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"topk_weights", call.topk_weights},
           {"token_topk_to_pos", call.token_topk_to_pos},
           {"sf", call.sf},
           {"out", call.out}},
          {{"format", call.format}},
          stream);
}

void per_token_cast(const PerTokenCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"x_block_size", call.x_block_size},
           {"x_sf_layout", call.x_sf_layout},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf}},
          stream);
}

void per_token_cast_with_sf_only(const PerTokenCastWithSfOnly& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_with_sf_only_op));
  call_op(op,
          {{"x", call.x},
           {"out_sf", call.out_sf}},
          {{"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf}},
          stream);
}

void per_token_cast_with_precomputed_sf(const PerTokenCastWithPrecomputedSf& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_with_precomputed_sf_op));
  call_op(op,
          {{"x", call.x},
           {"sf", call.sf},
           {"out", call.out}},
          {{"format", call.format},
           {"num_per_channels", call.num_per_channels}},
          stream);
}

void per_token_cast_to_e5m6(const PerTokenCastToE5m6& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_to_e5m6_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf}},
          stream);
}

void per_channel_cast_and_transpose(const PerChannelCastAndTranspose& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_channel_cast_and_transpose_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_tokens", call.num_per_tokens},
           {"round_sf", call.round_sf},
           {"format", call.format}},
          stream);
}

void cast_back(const CastBack& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(cast_back_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"out", call.out}},
          {{"x_block_size", call.x_block_size},
           {"out_dtype", call.out_dtype},
           {"x_sf_layout", call.x_sf_layout}},
          stream);
}

void per_token_cast_back(const PerTokenCastBack& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_back_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"out", call.out}},
          {{"num_per_channels", call.num_per_channels},
           {"out_dtype", call.out_dtype},
           {"x_sf_layout", call.x_sf_layout}},
          stream);
}

void cast_back_e5m6(const CastBackE5m6& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(cast_back_e5m6_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"out", call.out}},
          {{"x_block_size", call.x_block_size},
           {"out_dtype", call.out_dtype},
           {"x_sf_layout", call.x_sf_layout}},
          stream);
}

void swiglu_forward_and_per_token_cast(const SwigluForwardAndPerTokenCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_forward_and_per_token_cast_op));
  call_op(op,
          {{"x", call.x},
           {"pos_to_token_topk", call.pos_to_token_topk},
           {"topk_weights", call.topk_weights},
           {"pos_to_expert", call.pos_to_expert},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"clamped_count", call.clamped_count}},
          {{"num_per_channels", call.num_per_channels},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"sf_clamp_min", call.sf_clamp_min},
           {"format", call.format}},
          stream);
}

void transpose(const Transpose& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(transpose_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {},
          stream);
}

void batched_transpose(const BatchedTranspose& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(batched_transpose_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {},
          stream);
}

void engram_gate_fwd(const EngramGateFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_gate_fwd_op));
  call_op(op,
          {{"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_fused", call.weight_fused},
           {"out", call.out},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k}},
          {{"eps", call.eps},
           {"clamp_value", call.clamp_value},
           {"save_for_backward", call.save_for_backward}},
          stream);
}

void engram_hash(const EngramHash& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_hash_op));
  call_op(op,
          {{"ngram_token_ids", call.ngram_token_ids},
           {"multipliers", call.multipliers},
           {"vocab_sizes", call.vocab_sizes},
           {"offsets", call.offsets},
           {"out", call.out}},
          {},
          stream);
}

void expand_to_mhc_fwd(const ExpandToMhcFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(expand_to_mhc_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {{"mhc_mult", call.mhc_mult}},
          stream);
}

void norm_fn_fwd(const NormFnFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(norm_fn_fwd_op));
  call_op(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"norm_weight", call.norm_weight},
           {"out", call.out},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}},
          stream);
}

void pre_split_mixes_fwd(const PreSplitMixesFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_split_mixes_fwd_op));
  call_op(op,
          {{"input_mixes", call.input_mixes},
           {"scale", call.scale},
           {"base", call.base},
           {"pre_mix", call.pre_mix},
           {"post_mix", call.post_mix},
           {"comb_logits", call.comb_logits}},
          {{"post_mult_value", call.post_mult_value},
           {"pre_eps", call.pre_eps}},
          stream);
}

void sinkhorn_fwd(const SinkhornFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sinkhorn_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {{"repeat", call.repeat},
           {"eps", call.eps}},
          stream);
}

void sinkhorn_bwd(const SinkhornBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sinkhorn_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"x", call.x},
           {"grad_x", call.grad_x}},
          {{"repeat", call.repeat},
           {"eps", call.eps}},
          stream);
}

void pre_apply_mix_fwd(const PreApplyMixFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_apply_mix_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"mix", call.mix},
           {"out", call.out}},
          {},
          stream);
}

void post_fwd(const PostFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(post_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"residual", call.residual},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"out", call.out}},
          {},
          stream);
}

void post_bwd(const PostBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(post_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"x", call.x},
           {"residual", call.residual},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"grad_x", call.grad_x},
           {"grad_residual", call.grad_residual},
           {"grad_post_mix", call.grad_post_mix},
           {"grad_comb_mix", call.grad_comb_mix}},
          {},
          stream);
}

void pre_big_fuse(const PreBigFuse& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_big_fuse_op));
  call_op(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"layer_input", call.layer_input},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits}},
          stream);
}

}  // namespace tessera::kernels
