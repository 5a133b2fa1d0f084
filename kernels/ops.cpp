// Written from the signatures of the ops; a test compares, and with TESSERA_APPROVE=1 writes it again.
// clang-format off

#include "kernels/ops.h"

#include "kernels/op_call.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {

std::string_view name(ScoringFunc value) {
  constexpr std::string_view kWords[] = {"sigmoid", "sqrtsoftplus", "softmax"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Fold value) {
  constexpr std::string_view kWords[] = {"none", "row", "block"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Format value) {
  constexpr std::string_view kWords[] = {"bf16", "v4_fp8", "v41_fp8", "v41_fp4", "index_fp8", "index_fp4", "v32_fp8"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(CacheOrder value) {
  constexpr std::string_view kWords[] = {"planes", "rows"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(CosSinLayout value) {
  constexpr std::string_view kWords[] = {"pairs", "halves"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Order value) {
  constexpr std::string_view kWords[] = {"index", "value"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Scale value) {
  constexpr std::string_view kWords[] = {"shared", "routed"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(WeightsAt value) {
  constexpr std::string_view kWords[] = {"l1", "combine"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Routing value) {
  constexpr std::string_view kWords[] = {"topk", "hash"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(ExtraFormat value) {
  constexpr std::string_view kWords[] = {"none", "v4_fp8", "v41_fp8", "v41_fp4"};
  return kWords[static_cast<size_t>(value)];
}

std::string_view name(Activation value) {
  constexpr std::string_view kWords[] = {"none", "silu", "sigmoid"};
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

void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdx& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(topk_sum_and_topk_group_idx_op));
  call_op(op,
          {{"scores", call.scores},
           {"topk_group_idx", call.topk_group_idx}},
          {{"num_topk_sum", call.num_topk_sum},
           {"num_topk_groups", call.num_topk_groups}},
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

void normalize_weight(const NormalizeWeight& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(normalize_weight_op));
  call_op(op,
          {{"topk_weights", call.topk_weights},
           {"denominator", call.denominator},
           {"normalized_weights", call.normalized_weights}},
          {},
          stream);
}

void mask_indices_by_tp(const MaskIndicesByTp& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mask_indices_by_tp_op));
  call_op(op,
          {{"indices", call.indices},
           {"masked_indices", call.masked_indices}},
          {{"num_experts", call.num_experts},
           {"num_ep_ranks", call.num_ep_ranks},
           {"tp_rank", call.tp_rank},
           {"num_tp_ranks", call.num_tp_ranks}},
          stream);
}

void inplace_unique_group_indices(const InplaceUniqueGroupIndices& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(inplace_unique_group_indices_op));
  call_op(op,
          {{"group_indices", call.group_indices}},
          {{"num_groups", call.num_groups}},
          stream);
}

void group_count(const GroupCount& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(group_count_op));
  call_op(op,
          {{"group_idx", call.group_idx},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"num_groups", call.num_groups}},
          stream);
}

TensorView workspace_of(const GroupCount& call) {
  static const OpInfo& op = table_of(parsed(group_count_op));
  return workspace_of(op,
          {{"group_idx", call.group_idx},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"num_groups", call.num_groups}});
}

void aux_fi(const AuxFi& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(aux_fi_op));
  call_op(op,
          {{"topk_idx", call.topk_idx},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"num_experts", call.num_experts},
           {"num_aux_topk", call.num_aux_topk}},
          stream);
}

TensorView workspace_of(const AuxFi& call) {
  static const OpInfo& op = table_of(parsed(aux_fi_op));
  return workspace_of(op,
          {{"topk_idx", call.topk_idx},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"num_experts", call.num_experts},
           {"num_aux_topk", call.num_aux_topk}});
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

void expand_to_fused(const ExpandToFused& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(expand_to_fused_op));
  call_op(op,
          {{"x", call.x},
           {"token_topk_to_pos", call.token_topk_to_pos},
           {"pos_to_expert", call.pos_to_expert},
           {"out", call.out}},
          {},
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

void per_block_cast(const PerBlockCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_block_cast_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"format", call.format},
           {"block_size", call.block_size},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf}},
          stream);
}

void per_block_cast_with_sf_only(const PerBlockCastWithSfOnly& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_block_cast_with_sf_only_op));
  call_op(op,
          {{"x", call.x},
           {"out_sf", call.out_sf}},
          {{"format", call.format},
           {"block_size", call.block_size},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf}},
          stream);
}

void per_block_cast_with_precomputed_sf(const PerBlockCastWithPrecomputedSf& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_block_cast_with_precomputed_sf_op));
  call_op(op,
          {{"x", call.x},
           {"sf", call.sf},
           {"out", call.out}},
          {{"format", call.format},
           {"block_size", call.block_size}},
          stream);
}

void per_block_cast_lossless(const PerBlockCastLossless& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_block_cast_lossless_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"x_block_size", call.x_block_size},
           {"out_block_size", call.out_block_size},
           {"x_sf_layout", call.x_sf_layout},
           {"sf_layout", call.sf_layout},
           {"format", call.format}},
          stream);
}

void per_channel_cast(const PerChannelCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_channel_cast_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_tokens", call.num_per_tokens},
           {"round_sf", call.round_sf},
           {"format", call.format}},
          stream);
}

void per_channel_cast_fused(const PerChannelCastFused& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_channel_cast_fused_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"pos_to_token", call.pos_to_token},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_tokens", call.num_per_tokens},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"format", call.format}},
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

void swiglu_backward_and_per_token_cast(const SwigluBackwardAndPerTokenCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_backward_and_per_token_cast_op));
  call_op(op,
          {{"x", call.x},
           {"x_sf", call.x_sf},
           {"grad_out", call.grad_out},
           {"weight", call.weight},
           {"pos_to_token_topk", call.pos_to_token_topk},
           {"token_topk_to_pos", call.token_topk_to_pos},
           {"out", call.out},
           {"grad_x_fp8", call.grad_x_fp8},
           {"grad_x_fp8_sf", call.grad_x_fp8_sf},
           {"grad_x", call.grad_x},
           {"grad_weight", call.grad_weight}},
          {{"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value}},
          stream);
}

void swiglu_forward_and_per_channel_cast_and_transpose(const SwigluForwardAndPerChannelCastAndTranspose& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_forward_and_per_channel_cast_and_transpose_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_tokens", call.num_per_tokens},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"format", call.format}},
          stream);
}

void swiglu_forward_and_per_channel_cast(const SwigluForwardAndPerChannelCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_forward_and_per_channel_cast_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_tokens", call.num_per_tokens},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"format", call.format}},
          stream);
}

void unpack_from_e2m1fn_x2(const UnpackFromE2m1fnX2& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(unpack_from_e2m1fn_x2_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {{"out_dtype", call.out_dtype}},
          stream);
}

void batched_transpose_weight_sf(const BatchedTransposeWeightSf& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(batched_transpose_weight_sf_op));
  call_op(op,
          {{"sf", call.sf},
           {"sf0", call.sf0},
           {"sf1", call.sf1}},
          {{"block_size", call.block_size}},
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

void fused_weight(const FusedWeight& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(fused_weight_op));
  call_op(op,
          {{"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"weight_fused", call.weight_fused}},
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
           {"image_token_mask", call.image_token_mask},
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

void engram_gate_bwd(const EngramGateBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_gate_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"image_token_mask", call.image_token_mask},
           {"grad_hidden_states", call.grad_hidden_states},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_w_partial", call.grad_w_partial},
           {"workspace", call.workspace}},
          {{"clamp_value", call.clamp_value},
           {"num_persistent_blocks", call.num_persistent_blocks}},
          stream);
}

TensorView workspace_of(const EngramGateBwd& call) {
  static const OpInfo& op = table_of(parsed(engram_gate_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"image_token_mask", call.image_token_mask},
           {"grad_hidden_states", call.grad_hidden_states},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_w_partial", call.grad_w_partial},
           {"workspace", call.workspace}},
          {},
          {{"clamp_value", call.clamp_value},
           {"num_persistent_blocks", call.num_persistent_blocks}});
}

void grad_w_reduce(const GradWReduce& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(grad_w_reduce_op));
  call_op(op,
          {{"grad_w_partial", call.grad_w_partial},
           {"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"grad_weight_hidden", call.grad_weight_hidden},
           {"grad_weight_embed", call.grad_weight_embed}},
          {},
          stream);
}

void engram_hash(const EngramHash& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_hash_op));
  call_op(op,
          {{"ngram_token_ids", call.ngram_token_ids},
           {"multipliers", call.multipliers},
           {"vocab_sizes", call.vocab_sizes},
           {"offsets", call.offsets},
           {"image_token_mask", call.image_token_mask},
           {"out", call.out}},
          {},
          stream);
}

void engram_make_offsets(const EngramMakeOffsets& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_make_offsets_op));
  call_op(op,
          {{"vocab_sizes", call.vocab_sizes},
           {"offsets", call.offsets}},
          {},
          stream);
}

void engram_ngram_ids(const EngramNgramIds& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_ngram_ids_op));
  call_op(op,
          {{"token_ids", call.token_ids},
           {"row_start", call.row_start},
           {"history", call.history},
           {"ngram_token_ids", call.ngram_token_ids},
           {"next_history", call.next_history}},
          {{"ngram_size", call.ngram_size},
           {"pad_id", call.pad_id}},
          stream);
}

void engram_embed(const EngramEmbed& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_embed_op));
  call_op(op,
          {{"ngram_token_ids", call.ngram_token_ids},
           {"multipliers", call.multipliers},
           {"vocab_sizes", call.vocab_sizes},
           {"offsets", call.offsets},
           {"table", call.table},
           {"out", call.out}},
          {},
          stream);
}

void engram_sinkhorn_momentum(const EngramSinkhornMomentum& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_sinkhorn_momentum_op));
  call_op(op,
          {{"grad", call.grad},
           {"momentum", call.momentum},
           {"out", call.out}},
          {{"beta1", call.beta1},
           {"nesterov", call.nesterov}},
          stream);
}

void engram_sinkhorn_step(const EngramSinkhornStep& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_sinkhorn_step_op));
  call_op(op,
          {{"matrix", call.matrix},
           {"col_scale", call.col_scale},
           {"row_scale", call.row_scale},
           {"row_norm", call.row_norm},
           {"col_sumsq", call.col_sumsq},
           {"workspace", call.workspace}},
          {{"eps", call.eps}},
          stream);
}

TensorView workspace_of(const EngramSinkhornStep& call) {
  static const OpInfo& op = table_of(parsed(engram_sinkhorn_step_op));
  return workspace_of(op,
          {{"matrix", call.matrix},
           {"col_scale", call.col_scale},
           {"row_scale", call.row_scale},
           {"row_norm", call.row_norm},
           {"col_sumsq", call.col_sumsq},
           {"workspace", call.workspace}},
          {},
          {{"eps", call.eps}});
}

void engram_sinkhorn_finalize(const EngramSinkhornFinalize& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_sinkhorn_finalize_op));
  call_op(op,
          {{"matrix", call.matrix},
           {"row_scale", call.row_scale},
           {"col_scale", call.col_scale},
           {"out", call.out}},
          {{"eps", call.eps},
           {"alpha", call.alpha}},
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

void expand_to_mhc_bwd(const ExpandToMhcBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(expand_to_mhc_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"grad_x", call.grad_x}},
          {},
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

TensorView workspace_of(const NormFnFwd& call) {
  static const OpInfo& op = table_of(parsed(norm_fn_fwd_op));
  return workspace_of(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"norm_weight", call.norm_weight},
           {"out", call.out},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}});
}

void norm_fn_bwd(const NormFnBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(norm_fn_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"residual", call.residual},
           {"fn", call.fn},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps}},
          stream);
}

TensorView workspace_of(const NormFnBwd& call) {
  static const OpInfo& op = table_of(parsed(norm_fn_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"residual", call.residual},
           {"fn", call.fn},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps}});
}

void round_to_tf32(const RoundToTf32& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(round_to_tf32_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {},
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

void pre_split_mixes_bwd(const PreSplitMixesBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_split_mixes_bwd_op));
  call_op(op,
          {{"grad_pre_mix", call.grad_pre_mix},
           {"grad_post_mix", call.grad_post_mix},
           {"grad_comb_logits", call.grad_comb_logits},
           {"input_mixes", call.input_mixes},
           {"post_mix", call.post_mix},
           {"scale", call.scale},
           {"base", call.base},
           {"grad_input_mixes", call.grad_input_mixes},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"workspace", call.workspace}},
          {{"post_mult_value", call.post_mult_value}},
          stream);
}

TensorView workspace_of(const PreSplitMixesBwd& call) {
  static const OpInfo& op = table_of(parsed(pre_split_mixes_bwd_op));
  return workspace_of(op,
          {{"grad_pre_mix", call.grad_pre_mix},
           {"grad_post_mix", call.grad_post_mix},
           {"grad_comb_logits", call.grad_comb_logits},
           {"input_mixes", call.input_mixes},
           {"post_mix", call.post_mix},
           {"scale", call.scale},
           {"base", call.base},
           {"grad_input_mixes", call.grad_input_mixes},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"workspace", call.workspace}},
          {},
          {{"post_mult_value", call.post_mult_value}});
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

void pre_apply_mix_bwd(const PreApplyMixBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_apply_mix_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"x", call.x},
           {"mix", call.mix},
           {"grad_x", call.grad_x},
           {"grad_mix", call.grad_mix}},
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

TensorView workspace_of(const PreBigFuse& call) {
  static const OpInfo& op = table_of(parsed(pre_big_fuse_op));
  return workspace_of(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"layer_input", call.layer_input},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits}});
}

void head_compute_mix_fwd(const HeadComputeMixFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(head_compute_mix_fwd_op));
  call_op(op,
          {{"input_mix", call.input_mix},
           {"scale", call.scale},
           {"base", call.base},
           {"out", call.out}},
          {{"pre_eps", call.pre_eps}},
          stream);
}

void head_compute_mix_bwd(const HeadComputeMixBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(head_compute_mix_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"input_mix", call.input_mix},
           {"scale", call.scale},
           {"base", call.base},
           {"grad_input_mix", call.grad_input_mix},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"workspace", call.workspace}},
          {},
          stream);
}

TensorView workspace_of(const HeadComputeMixBwd& call) {
  static const OpInfo& op = table_of(parsed(head_compute_mix_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"input_mix", call.input_mix},
           {"scale", call.scale},
           {"base", call.base},
           {"grad_input_mix", call.grad_input_mix},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"workspace", call.workspace}},
          {},
          {});
}

void multilayer_recompute(const MultilayerRecompute& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(multilayer_recompute_op));
  call_op(op,
          {{"initial_residual", call.initial_residual}},
          {{"pre_mix_list", call.pre_mix_list}, {"layer_output_list", call.layer_output_list}, {"post_mix_list", call.post_mix_list}, {"comb_mix_list", call.comb_mix_list}, {"layer_input_list", call.layer_input_list}, {"residual_list", call.residual_list}},
          {},
          stream);
}

void pre_big_fuse_and_norm(const PreBigFuseAndNorm& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(pre_big_fuse_and_norm_op));
  call_op(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"weight", call.weight},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"layer_input", call.layer_input},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"out_bf16", call.out_bf16},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"rms_eps", call.rms_eps},
           {"out_scale", call.out_scale},
           {"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout},
           {"save_layer_input", call.save_layer_input},
           {"save_bf16", call.save_bf16}},
          stream);
}

TensorView workspace_of(const PreBigFuseAndNorm& call) {
  static const OpInfo& op = table_of(parsed(pre_big_fuse_and_norm_op));
  return workspace_of(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"weight", call.weight},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"layer_input", call.layer_input},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"out_bf16", call.out_bf16},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"rms_eps", call.rms_eps},
           {"out_scale", call.out_scale},
           {"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout},
           {"save_layer_input", call.save_layer_input},
           {"save_bf16", call.save_bf16}});
}

void mhc_boundary(const MhcBoundary& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mhc_boundary_op));
  call_op(op,
          {{"x", call.x},
           {"residual", call.residual},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"weight", call.weight},
           {"next_residual", call.next_residual},
           {"next_post_mix", call.next_post_mix},
           {"next_comb_mix", call.next_comb_mix},
           {"layer_input", call.layer_input},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"out_bf16", call.out_bf16},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"rms_eps", call.rms_eps},
           {"out_scale", call.out_scale},
           {"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout},
           {"save_layer_input", call.save_layer_input},
           {"save_bf16", call.save_bf16}},
          stream);
}

TensorView workspace_of(const MhcBoundary& call) {
  static const OpInfo& op = table_of(parsed(mhc_boundary_op));
  return workspace_of(op,
          {{"x", call.x},
           {"residual", call.residual},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"weight", call.weight},
           {"next_residual", call.next_residual},
           {"next_post_mix", call.next_post_mix},
           {"next_comb_mix", call.next_comb_mix},
           {"layer_input", call.layer_input},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"out_bf16", call.out_bf16},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"rms_eps", call.rms_eps},
           {"out_scale", call.out_scale},
           {"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout},
           {"save_layer_input", call.save_layer_input},
           {"save_bf16", call.save_bf16}});
}

void engram_fwd(const EngramFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_fwd_op));
  call_op(op,
          {{"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"image_token_mask", call.image_token_mask},
           {"out", call.out},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"workspace", call.workspace}},
          {{"eps", call.eps},
           {"clamp_value", call.clamp_value},
           {"save_for_backward", call.save_for_backward}},
          stream);
}

TensorView workspace_of(const EngramFwd& call) {
  static const OpInfo& op = table_of(parsed(engram_fwd_op));
  return workspace_of(op,
          {{"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"image_token_mask", call.image_token_mask},
           {"out", call.out},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"workspace", call.workspace}},
          {},
          {{"eps", call.eps},
           {"clamp_value", call.clamp_value},
           {"save_for_backward", call.save_for_backward}});
}

void engram_bwd(const EngramBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(engram_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"image_token_mask", call.image_token_mask},
           {"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"grad_hidden_states", call.grad_hidden_states},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_weight_hidden", call.grad_weight_hidden},
           {"grad_weight_embed", call.grad_weight_embed},
           {"workspace", call.workspace}},
          {{"clamp_value", call.clamp_value}},
          stream);
}

TensorView workspace_of(const EngramBwd& call) {
  static const OpInfo& op = table_of(parsed(engram_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"hidden_states", call.hidden_states},
           {"k", call.k},
           {"v", call.v},
           {"weight_fused", call.weight_fused},
           {"dot", call.dot},
           {"gate_score", call.gate_score},
           {"rstd_x", call.rstd_x},
           {"rstd_k", call.rstd_k},
           {"image_token_mask", call.image_token_mask},
           {"weight_hidden", call.weight_hidden},
           {"weight_embed", call.weight_embed},
           {"grad_hidden_states", call.grad_hidden_states},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_weight_hidden", call.grad_weight_hidden},
           {"grad_weight_embed", call.grad_weight_embed},
           {"workspace", call.workspace}},
          {},
          {{"clamp_value", call.clamp_value}});
}

void mhc_pre_fwd(const MhcPreFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mhc_pre_fwd_op));
  call_op(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"layer_input", call.layer_input},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mixes", call.input_mixes},
           {"pre_mix", call.pre_mix},
           {"comb_logits", call.comb_logits},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}},
          stream);
}

TensorView workspace_of(const MhcPreFwd& call) {
  static const OpInfo& op = table_of(parsed(mhc_pre_fwd_op));
  return workspace_of(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"layer_input", call.layer_input},
           {"post_mix", call.post_mix},
           {"comb_mix", call.comb_mix},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mixes", call.input_mixes},
           {"pre_mix", call.pre_mix},
           {"comb_logits", call.comb_logits},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}});
}

void mhc_pre_bwd(const MhcPreBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mhc_pre_bwd_op));
  call_op(op,
          {{"grad_layer_input", call.grad_layer_input},
           {"grad_post_mix", call.grad_post_mix},
           {"grad_comb_mix", call.grad_comb_mix},
           {"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mixes", call.input_mixes},
           {"pre_mix", call.pre_mix},
           {"post_mix", call.post_mix},
           {"comb_logits", call.comb_logits},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat}},
          stream);
}

TensorView workspace_of(const MhcPreBwd& call) {
  static const OpInfo& op = table_of(parsed(mhc_pre_bwd_op));
  return workspace_of(op,
          {{"grad_layer_input", call.grad_layer_input},
           {"grad_post_mix", call.grad_post_mix},
           {"grad_comb_mix", call.grad_comb_mix},
           {"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mixes", call.input_mixes},
           {"pre_mix", call.pre_mix},
           {"post_mix", call.post_mix},
           {"comb_logits", call.comb_logits},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"sinkhorn_eps", call.sinkhorn_eps},
           {"post_mult_value", call.post_mult_value},
           {"sinkhorn_repeat", call.sinkhorn_repeat}});
}

void mhc_head_fwd(const MhcHeadFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mhc_head_fwd_op));
  call_op(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out", call.out},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mix", call.input_mix},
           {"pre_mix", call.pre_mix},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}},
          stream);
}

TensorView workspace_of(const MhcHeadFwd& call) {
  static const OpInfo& op = table_of(parsed(mhc_head_fwd_op));
  return workspace_of(op,
          {{"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out", call.out},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mix", call.input_mix},
           {"pre_mix", call.pre_mix},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps},
           {"pre_eps", call.pre_eps},
           {"n_splits", call.n_splits},
           {"save_for_backward", call.save_for_backward}});
}

void mhc_head_bwd(const MhcHeadBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mhc_head_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mix", call.input_mix},
           {"pre_mix", call.pre_mix},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {{"norm_eps", call.norm_eps}},
          stream);
}

TensorView workspace_of(const MhcHeadBwd& call) {
  static const OpInfo& op = table_of(parsed(mhc_head_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"residual", call.residual},
           {"fn", call.fn},
           {"scale", call.scale},
           {"base", call.base},
           {"norm_weight", call.norm_weight},
           {"out_mul", call.out_mul},
           {"sqrsum", call.sqrsum},
           {"input_mix", call.input_mix},
           {"pre_mix", call.pre_mix},
           {"grad_residual", call.grad_residual},
           {"grad_fn", call.grad_fn},
           {"grad_scale", call.grad_scale},
           {"grad_base", call.grad_base},
           {"grad_norm_weight", call.grad_norm_weight},
           {"workspace", call.workspace}},
          {},
          {{"norm_eps", call.norm_eps}});
}

void gemm_bf16(const GemmBf16& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_bf16_op));
  call_op(op,
          {{"a", call.a},
           {"b", call.b},
           {"bias", call.bias},
           {"out", call.out}},
          {{"out_dtype", call.out_dtype}},
          stream);
}

void gemm_fp8_block(const GemmFp8Block& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_fp8_block_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_sf", call.b_sf},
           {"out", call.out}},
          {{"a_sf_layout", call.a_sf_layout},
           {"out_dtype", call.out_dtype}},
          stream);
}

void gemm_fp8_grouped(const GemmFp8Grouped& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_fp8_grouped_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_sf", call.b_sf},
           {"m_indices", call.m_indices},
           {"psum", call.psum},
           {"out", call.out}},
          {{"a_sf_layout", call.a_sf_layout},
           {"alignment", call.alignment}},
          stream);
}

void gemm_fp8_masked(const GemmFp8Masked& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_fp8_masked_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_sf", call.b_sf},
           {"masked_m", call.masked_m},
           {"out", call.out}},
          {{"expected_m", call.expected_m}},
          stream);
}

void gemm_fp8_k_grouped(const GemmFp8KGrouped& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_fp8_k_grouped_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_sf", call.b_sf},
           {"k_offsets", call.k_offsets},
           {"out", call.out}},
          {},
          stream);
}

void mxfp4_prepack(const Mxfp4Prepack& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mxfp4_prepack_op));
  call_op(op,
          {{"w", call.w},
           {"w_sf", call.w_sf},
           {"out", call.out},
           {"out_shift", call.out_shift},
           {"out_sf", call.out_sf},
           {"inexact", call.inexact}},
          {{"operand", call.operand},
           {"fold", call.fold},
           {"save_inexact", call.save_inexact}},
          stream);
}

void mxfp4_decode(const Mxfp4Decode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mxfp4_decode_op));
  call_op(op,
          {{"b", call.b},
           {"b_shift", call.b_shift},
           {"b_sf", call.b_sf},
           {"out", call.out}},
          {{"num_columns", call.num_columns}},
          stream);
}

void gemm_mxfp4(const GemmMxfp4& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_mxfp4_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_shift", call.b_shift},
           {"b_sf", call.b_sf},
           {"bias", call.bias},
           {"out", call.out}},
          {{"num_per_channels", call.num_per_channels},
           {"a_sf_layout", call.a_sf_layout},
           {"out_dtype", call.out_dtype}},
          stream);
}

void gemm_mxfp4_grouped(const GemmMxfp4Grouped& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_mxfp4_grouped_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_shift", call.b_shift},
           {"b_sf", call.b_sf},
           {"bias", call.bias},
           {"psum", call.psum},
           {"m_indices", call.m_indices},
           {"out", call.out}},
          {{"num_per_channels", call.num_per_channels},
           {"a_sf_layout", call.a_sf_layout},
           {"alignment", call.alignment}},
          stream);
}

void gemm_mxfp4_masked(const GemmMxfp4Masked& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gemm_mxfp4_masked_op));
  call_op(op,
          {{"a", call.a},
           {"a_sf", call.a_sf},
           {"b", call.b},
           {"b_shift", call.b_shift},
           {"b_sf", call.b_sf},
           {"bias", call.bias},
           {"masked_m", call.masked_m},
           {"out", call.out}},
          {{"num_per_channels", call.num_per_channels},
           {"a_sf_layout", call.a_sf_layout},
           {"expected_m", call.expected_m}},
          stream);
}

void compress_plan(const CompressPlan& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_plan_op));
  call_op(op,
          {{"start", call.start},
           {"row_start", call.row_start},
           {"state_slot", call.state_slot},
           {"state_pages", call.state_pages},
           {"page_table", call.page_table},
           {"plan", call.plan},
           {"write_plan", call.write_plan},
           {"counts", call.counts}},
          {{"ratio", call.ratio},
           {"num_windows", call.num_windows},
           {"num_writes", call.num_writes},
           {"ring", call.ring},
           {"max_rollback", call.max_rollback},
           {"state_page_size", call.state_page_size},
           {"page_size", call.page_size}},
          stream);
}

void compress_plan_decode(const CompressPlanDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_plan_decode_op));
  call_op(op,
          {{"positions", call.positions},
           {"state_slot", call.state_slot},
           {"state_pages", call.state_pages},
           {"page_table", call.page_table},
           {"plan", call.plan}},
          {{"ratio", call.ratio},
           {"ring", call.ring},
           {"max_rollback", call.max_rollback},
           {"state_page_size", call.state_page_size},
           {"page_size", call.page_size}},
          stream);
}

void compress_fwd(const CompressFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"state", call.state},
           {"plan", call.plan},
           {"out", call.out}},
          {{"ratio", call.ratio},
           {"out_dtype", call.out_dtype}},
          stream);
}

void compress_state_write(const CompressStateWrite& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_state_write_op));
  call_op(op,
          {{"x", call.x},
           {"write_plan", call.write_plan},
           {"state", call.state}},
          {{"ratio", call.ratio}},
          stream);
}

void compress_decode(const CompressDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_decode_op));
  call_op(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"plan", call.plan},
           {"out", call.out},
           {"state", call.state}},
          {{"ratio", call.ratio},
           {"out_dtype", call.out_dtype}},
          stream);
}

void compress_store(const CompressStore& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_store_op));
  call_op(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"state", call.state},
           {"plan", call.plan},
           {"norm_weight", call.norm_weight},
           {"cos_sin", call.cos_sin},
           {"cache", call.cache},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"ratio", call.ratio},
           {"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"norm_eps", call.norm_eps},
           {"hadamard", call.hadamard},
           {"cos_sin_layout", call.cos_sin_layout},
           {"save_out", call.save_out}},
          stream);
}

TensorView workspace_of(const CompressStore& call) {
  static const OpInfo& op = table_of(parsed(compress_store_op));
  return workspace_of(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"state", call.state},
           {"plan", call.plan},
           {"norm_weight", call.norm_weight},
           {"cos_sin", call.cos_sin},
           {"cache", call.cache},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"ratio", call.ratio},
           {"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"norm_eps", call.norm_eps},
           {"hadamard", call.hadamard},
           {"cos_sin_layout", call.cos_sin_layout},
           {"save_out", call.save_out}});
}

void compress_decode_store(const CompressDecodeStore& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_decode_store_op));
  call_op(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"plan", call.plan},
           {"norm_weight", call.norm_weight},
           {"cos_sin", call.cos_sin},
           {"state", call.state},
           {"cache", call.cache},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"ratio", call.ratio},
           {"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"norm_eps", call.norm_eps},
           {"hadamard", call.hadamard},
           {"cos_sin_layout", call.cos_sin_layout},
           {"save_out", call.save_out}},
          stream);
}

TensorView workspace_of(const CompressDecodeStore& call) {
  static const OpInfo& op = table_of(parsed(compress_decode_store_op));
  return workspace_of(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"plan", call.plan},
           {"norm_weight", call.norm_weight},
           {"cos_sin", call.cos_sin},
           {"state", call.state},
           {"cache", call.cache},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"ratio", call.ratio},
           {"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"norm_eps", call.norm_eps},
           {"hadamard", call.hadamard},
           {"cos_sin_layout", call.cos_sin_layout},
           {"save_out", call.save_out}});
}

void compress_prefill(const CompressPrefill& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(compress_prefill_op));
  call_op(op,
          {{"x", call.x},
           {"ape", call.ape},
           {"plan", call.plan},
           {"write_plan", call.write_plan},
           {"out", call.out},
           {"state", call.state}},
          {{"ratio", call.ratio},
           {"out_dtype", call.out_dtype}},
          stream);
}

void topk_select(const TopkSelect& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(topk_select_op));
  call_op(op,
          {{"scores", call.scores},
           {"lengths", call.lengths},
           {"starts", call.starts},
           {"page_table", call.page_table},
           {"table_row", call.table_row},
           {"plan", call.plan},
           {"indices", call.indices},
           {"raw_indices", call.raw_indices},
           {"values", call.values}},
          {{"topk", call.topk},
           {"order", call.order},
           {"page_size", call.page_size},
           {"relative", call.relative},
           {"save_raw", call.save_raw},
           {"save_values", call.save_values}},
          stream);
}

void topk_plan(const TopkPlan& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(topk_plan_op));
  call_op(op,
          {{"lengths", call.lengths},
           {"plan", call.plan}},
          {{"topk", call.topk},
           {"max_length", call.max_length}},
          stream);
}

void hash_gate(const HashGate& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(hash_gate_op));
  call_op(op,
          {{"token_ids", call.token_ids},
           {"table", call.table},
           {"logits", call.logits},
           {"num_tokens", call.num_tokens},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights}},
          {{"num_shared_experts", call.num_shared_experts},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"scale", call.scale},
           {"idx_dtype", call.idx_dtype}},
          stream);
}

void mask_padded_topk(const MaskPaddedTopk& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mask_padded_topk_op));
  call_op(op,
          {{"num_tokens", call.num_tokens},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights}},
          {},
          stream);
}

void moe_topk_gate_fwd(const MoeTopkGateFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_topk_gate_fwd_op));
  call_op(op,
          {{"logits", call.logits},
           {"bias", call.bias},
           {"image_bias", call.image_bias},
           {"image_token_mask", call.image_token_mask},
           {"mask", call.mask},
           {"fix_routing_mask", call.fix_routing_mask},
           {"to_physical_map", call.to_physical_map},
           {"logical_count", call.logical_count},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"scores", call.scores},
           {"unmapped_topk_idx", call.unmapped_topk_idx}},
          {{"num_topk", call.num_topk},
           {"use_shared_as_routed", call.use_shared_as_routed},
           {"num_shared_experts", call.num_shared_experts},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"ep_rank", call.ep_rank},
           {"save_scores", call.save_scores}},
          stream);
}

void moe_topk_gate_bwd(const MoeTopkGateBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_topk_gate_bwd_op));
  call_op(op,
          {{"scores", call.scores},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"grad_topk_weights", call.grad_topk_weights},
           {"mask", call.mask},
           {"grad_scores_sum", call.grad_scores_sum},
           {"grad_logits", call.grad_logits}},
          {{"routed_scaling_factor", call.routed_scaling_factor}},
          stream);
}

void gate_scores_sum(const GateScoresSum& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gate_scores_sum_op));
  call_op(op,
          {{"scores", call.scores},
           {"mask", call.mask},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"num_seqs", call.num_seqs}},
          stream);
}

TensorView workspace_of(const GateScoresSum& call) {
  static const OpInfo& op = table_of(parsed(gate_scores_sum_op));
  return workspace_of(op,
          {{"scores", call.scores},
           {"mask", call.mask},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"num_seqs", call.num_seqs}});
}

void apply_rotary(const ApplyRotary& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(apply_rotary_op));
  call_op(op,
          {{"cos_sin", call.cos_sin},
           {"positions", call.positions},
           {"query", call.query},
           {"key", call.key}},
          {{"interleaved", call.interleaved},
           {"conjugate", call.conjugate},
           {"position_offset", call.position_offset},
           {"cos_sin_layout", call.cos_sin_layout}},
          stream);
}

void norm_fwd(const NormFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(norm_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"weight", call.weight},
           {"residual", call.residual},
           {"out", call.out},
           {"residual_out", call.residual_out},
           {"rstd", call.rstd}},
          {{"norm_eps", call.norm_eps},
           {"out_scale", call.out_scale},
           {"save_rstd", call.save_rstd}},
          stream);
}

void norm_fwd_and_per_token_cast(const NormFwdAndPerTokenCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(norm_fwd_and_per_token_cast_op));
  call_op(op,
          {{"x", call.x},
           {"weight", call.weight},
           {"residual", call.residual},
           {"out", call.out},
           {"out_sf", call.out_sf},
           {"out_bf16", call.out_bf16},
           {"mega_moe_sf", call.mega_moe_sf},
           {"residual_out", call.residual_out},
           {"rstd", call.rstd}},
          {{"norm_eps", call.norm_eps},
           {"out_scale", call.out_scale},
           {"save_rstd", call.save_rstd},
           {"num_per_channels", call.num_per_channels},
           {"sf_layout", call.sf_layout},
           {"round_sf", call.round_sf},
           {"save_bf16", call.save_bf16},
           {"mega_moe_block_m", call.mega_moe_block_m}},
          stream);
}

void norm_bwd(const NormBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(norm_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"x", call.x},
           {"weight", call.weight},
           {"rstd", call.rstd},
           {"grad_residual_out", call.grad_residual_out},
           {"grad_x", call.grad_x},
           {"grad_weight", call.grad_weight},
           {"workspace", call.workspace}},
          {{"out_scale", call.out_scale}},
          stream);
}

TensorView workspace_of(const NormBwd& call) {
  static const OpInfo& op = table_of(parsed(norm_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"x", call.x},
           {"weight", call.weight},
           {"rstd", call.rstd},
           {"grad_residual_out", call.grad_residual_out},
           {"grad_x", call.grad_x},
           {"grad_weight", call.grad_weight},
           {"workspace", call.workspace}},
          {},
          {{"out_scale", call.out_scale}});
}

void cast(const Cast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(cast_op));
  call_op(op,
          {{"x", call.x},
           {"out", call.out}},
          {{"out_dtype", call.out_dtype},
           {"stochastic", call.stochastic},
           {"seed", call.seed}},
          stream);
}

void per_token_cast_and_cast_back(const PerTokenCastAndCastBack& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(per_token_cast_and_cast_back_op));
  call_op(op,
          {{"x", call.x}},
          {{"format", call.format},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"e4m3_sf", call.e4m3_sf}},
          stream);
}

void swiglu_fwd(const SwigluFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"psum", call.psum},
           {"topk_weights", call.topk_weights},
           {"out", call.out},
           {"clamped_count", call.clamped_count}},
          {{"out_dtype", call.out_dtype},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"alignment", call.alignment}},
          stream);
}

void swiglu_bwd(const SwigluBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_bwd_op));
  call_op(op,
          {{"x", call.x},
           {"grad_out", call.grad_out},
           {"psum", call.psum},
           {"topk_weights", call.topk_weights},
           {"grad_x", call.grad_x},
           {"out", call.out},
           {"grad_weight", call.grad_weight}},
          {{"out_dtype", call.out_dtype},
           {"save_out", call.save_out},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"alignment", call.alignment}},
          stream);
}

void gather_pages(const GatherPages& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gather_pages_op));
  call_op(op,
          {{"indices", call.indices},
           {"page_table", call.page_table},
           {"out", call.out}},
          {{"page_size", call.page_size}},
          stream);
}

void paged_lengths(const PagedLengths& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(paged_lengths_op));
  call_op(op,
          {{"lengths", call.lengths},
           {"compressed", call.compressed},
           {"blocks", call.blocks}},
          {{"ratio", call.ratio},
           {"page_size", call.page_size}},
          stream);
}

void slot_plan(const SlotPlan& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(slot_plan_op));
  call_op(op,
          {{"positions", call.positions},
           {"window_pages", call.window_pages},
           {"c4_pages", call.c4_pages},
           {"c128_pages", call.c128_pages},
           {"window_slot", call.window_slot},
           {"c4_slot", call.c4_slot},
           {"c128_slot", call.c128_slot}},
          {{"window_page_size", call.window_page_size},
           {"c4_page_size", call.c4_page_size},
           {"c128_page_size", call.c128_page_size}},
          stream);
}

void serving_plan(const ServingPlan& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(serving_plan_op));
  call_op(op,
          {{"row_start", call.row_start},
           {"start", call.start},
           {"page_table", call.page_table},
           {"row_request", call.row_request},
           {"positions", call.positions},
           {"entries", call.entries},
           {"slots", call.slots}},
          {{"num_rows", call.num_rows},
           {"ratio", call.ratio},
           {"second_ratio", call.second_ratio},
           {"page_size", call.page_size}},
          stream);
}

void hisparse_swap_in(const HisparseSwapIn& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(hisparse_swap_in_op));
  call_op(op,
          {{"tokens", call.tokens},
           {"seq_len", call.seq_len},
           {"req", call.req},
           {"num_reqs", call.num_reqs},
           {"hot_slots", call.hot_slots},
           {"host_loc", call.host_loc},
           {"host", call.host},
           {"locations", call.locations},
           {"hot_tokens", call.hot_tokens},
           {"lru", call.lru},
           {"cache", call.cache},
           {"miss_list", call.miss_list},
           {"miss_count", call.miss_count},
           {"workspace", call.workspace}},
          {{"save_misses", call.save_misses}},
          stream);
}

TensorView workspace_of(const HisparseSwapIn& call) {
  static const OpInfo& op = table_of(parsed(hisparse_swap_in_op));
  return workspace_of(op,
          {{"tokens", call.tokens},
           {"seq_len", call.seq_len},
           {"req", call.req},
           {"num_reqs", call.num_reqs},
           {"hot_slots", call.hot_slots},
           {"host_loc", call.host_loc},
           {"host", call.host},
           {"locations", call.locations},
           {"hot_tokens", call.hot_tokens},
           {"lru", call.lru},
           {"cache", call.cache},
           {"miss_list", call.miss_list},
           {"miss_count", call.miss_count},
           {"workspace", call.workspace}},
          {},
          {{"save_misses", call.save_misses}});
}

void hisparse_replay(const HisparseReplay& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(hisparse_replay_op));
  call_op(op,
          {{"miss_list", call.miss_list},
           {"miss_count", call.miss_count},
           {"host", call.host},
           {"cache", call.cache}},
          {},
          stream);
}

void hisparse_backup(const HisparseBackup& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(hisparse_backup_op));
  call_op(op,
          {{"seq_len", call.seq_len},
           {"req", call.req},
           {"num_reqs", call.num_reqs},
           {"hot_slots", call.hot_slots},
           {"host_loc", call.host_loc},
           {"cache", call.cache},
           {"host", call.host}},
          {},
          stream);
}

void moe_plan(const MoePlan& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_plan_op));
  call_op(op,
          {{"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"num_tokens", call.num_tokens},
           {"pos_to_pair", call.pos_to_pair},
           {"pair_to_pos", call.pair_to_pos},
           {"psum", call.psum},
           {"counts", call.counts},
           {"row_weights", call.row_weights},
           {"m_indices", call.m_indices}},
          {{"num_experts", call.num_experts},
           {"alignment", call.alignment},
           {"num_rows", call.num_rows},
           {"save_m_indices", call.save_m_indices}},
          stream);
}

void moe_gather_cast(const MoeGatherCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_gather_cast_op));
  call_op(op,
          {{"x", call.x},
           {"pos_to_pair", call.pos_to_pair},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_topk", call.num_topk},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout},
           {"fill_padding", call.fill_padding}},
          stream);
}

void swiglu_psum_cast(const SwigluPsumCast& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(swiglu_psum_cast_op));
  call_op(op,
          {{"x", call.x},
           {"topk_weights", call.topk_weights},
           {"psum", call.psum},
           {"out", call.out},
           {"out_sf", call.out_sf}},
          {{"num_per_channels", call.num_per_channels},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"alignment", call.alignment},
           {"round_sf", call.round_sf},
           {"sf_layout", call.sf_layout}},
          stream);
}

void combine_reduce(const CombineReduce& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(combine_reduce_op));
  call_op(op,
          {{"x", call.x},
           {"pos", call.pos},
           {"topk_weights", call.topk_weights},
           {"base", call.base},
           {"num_tokens", call.num_tokens},
           {"out", call.out}},
          {},
          stream);
}

void moe_forward(const MoeForward& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_forward_op));
  call_op(op,
          {{"x", call.x},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"w13", call.w13},
           {"w13_sf", call.w13_sf},
           {"w2", call.w2},
           {"w2_sf", call.w2_sf},
           {"w13_shift", call.w13_shift},
           {"w2_shift", call.w2_shift},
           {"base", call.base},
           {"num_tokens", call.num_tokens},
           {"out", call.out},
           {"workspace", call.workspace}},
          {{"activation", call.activation},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"weights_at", call.weights_at}},
          stream);
}

TensorView workspace_of(const MoeForward& call) {
  static const OpInfo& op = table_of(parsed(moe_forward_op));
  return workspace_of(op,
          {{"x", call.x},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"w13", call.w13},
           {"w13_sf", call.w13_sf},
           {"w2", call.w2},
           {"w2_sf", call.w2_sf},
           {"w13_shift", call.w13_shift},
           {"w2_shift", call.w2_shift},
           {"base", call.base},
           {"num_tokens", call.num_tokens},
           {"out", call.out},
           {"workspace", call.workspace}},
          {},
          {{"activation", call.activation},
           {"num_per_channels", call.num_per_channels},
           {"round_sf", call.round_sf},
           {"swiglu_clamp_value", call.swiglu_clamp_value},
           {"weights_at", call.weights_at}});
}

void router_logits(const RouterLogits& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(router_logits_op));
  call_op(op,
          {{"x", call.x},
           {"w", call.w},
           {"logits", call.logits},
           {"workspace", call.workspace}},
          {},
          stream);
}

TensorView workspace_of(const RouterLogits& call) {
  static const OpInfo& op = table_of(parsed(router_logits_op));
  return workspace_of(op,
          {{"x", call.x},
           {"w", call.w},
           {"logits", call.logits},
           {"workspace", call.workspace}},
          {},
          {});
}

void moe_gate(const MoeGate& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(moe_gate_op));
  call_op(op,
          {{"x", call.x},
           {"w", call.w},
           {"bias", call.bias},
           {"image_bias", call.image_bias},
           {"image_token_mask", call.image_token_mask},
           {"mask", call.mask},
           {"fix_routing_mask", call.fix_routing_mask},
           {"to_physical_map", call.to_physical_map},
           {"logical_count", call.logical_count},
           {"token_ids", call.token_ids},
           {"table", call.table},
           {"num_tokens", call.num_tokens},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"scores", call.scores},
           {"logits", call.logits},
           {"unmapped_topk_idx", call.unmapped_topk_idx},
           {"workspace", call.workspace}},
          {{"routing", call.routing},
           {"num_topk", call.num_topk},
           {"use_shared_as_routed", call.use_shared_as_routed},
           {"num_shared_experts", call.num_shared_experts},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"ep_rank", call.ep_rank},
           {"save_scores", call.save_scores},
           {"scale", call.scale},
           {"idx_dtype", call.idx_dtype},
           {"save_logits", call.save_logits}},
          stream);
}

TensorView workspace_of(const MoeGate& call) {
  static const OpInfo& op = table_of(parsed(moe_gate_op));
  return workspace_of(op,
          {{"x", call.x},
           {"w", call.w},
           {"bias", call.bias},
           {"image_bias", call.image_bias},
           {"image_token_mask", call.image_token_mask},
           {"mask", call.mask},
           {"fix_routing_mask", call.fix_routing_mask},
           {"to_physical_map", call.to_physical_map},
           {"logical_count", call.logical_count},
           {"token_ids", call.token_ids},
           {"table", call.table},
           {"num_tokens", call.num_tokens},
           {"topk_idx", call.topk_idx},
           {"topk_weights", call.topk_weights},
           {"scores", call.scores},
           {"logits", call.logits},
           {"unmapped_topk_idx", call.unmapped_topk_idx},
           {"workspace", call.workspace}},
          {},
          {{"routing", call.routing},
           {"num_topk", call.num_topk},
           {"use_shared_as_routed", call.use_shared_as_routed},
           {"num_shared_experts", call.num_shared_experts},
           {"routed_scaling_factor", call.routed_scaling_factor},
           {"ep_rank", call.ep_rank},
           {"save_scores", call.save_scores},
           {"scale", call.scale},
           {"idx_dtype", call.idx_dtype},
           {"save_logits", call.save_logits}});
}

void kv_store(const KvStore& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(kv_store_op));
  call_op(op,
          {{"x", call.x},
           {"loc", call.loc},
           {"cache", call.cache}},
          {{"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order}},
          stream);
}

void kv_load(const KvLoad& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(kv_load_op));
  call_op(op,
          {{"cache", call.cache},
           {"loc", call.loc},
           {"out", call.out}},
          {{"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"out_dtype", call.out_dtype}},
          stream);
}

void kv_norm_rope_store(const KvNormRopeStore& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(kv_norm_rope_store_op));
  call_op(op,
          {{"x", call.x},
           {"norm_weight", call.norm_weight},
           {"cos_sin", call.cos_sin},
           {"positions", call.positions},
           {"loc", call.loc},
           {"cache", call.cache}},
          {{"format", call.format},
           {"page_size", call.page_size},
           {"cache_order", call.cache_order},
           {"norm_eps", call.norm_eps},
           {"hadamard", call.hadamard},
           {"round_before", call.round_before},
           {"cos_sin_layout", call.cos_sin_layout}},
          stream);
}

void q_norm_rope(const QNormRope& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(q_norm_rope_op));
  call_op(op,
          {{"q", call.q},
           {"cos_sin", call.cos_sin},
           {"positions", call.positions},
           {"out", call.out}},
          {{"norm_eps", call.norm_eps},
           {"cos_sin_layout", call.cos_sin_layout}},
          stream);
}

void index_q_store(const IndexQStore& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(index_q_store_op));
  call_op(op,
          {{"q", call.q},
           {"weight", call.weight},
           {"cos_sin", call.cos_sin},
           {"positions", call.positions},
           {"out", call.out},
           {"weights", call.weights}},
          {{"weight_scale", call.weight_scale},
           {"hadamard", call.hadamard},
           {"rope_first", call.rope_first},
           {"cos_sin_layout", call.cos_sin_layout}},
          stream);
}

void mqa_logits(const MqaLogits& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mqa_logits_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"weights", call.weights},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"logits", call.logits}},
          {{"logits_dtype", call.logits_dtype},
           {"compressed", call.compressed},
           {"max_len", call.max_len},
           {"clean", call.clean}},
          stream);
}

void paged_mqa_logits(const PagedMqaLogits& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(paged_mqa_logits_op));
  call_op(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"weights", call.weights},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"logits", call.logits}},
          {{"max_len", call.max_len},
           {"logits_dtype", call.logits_dtype},
           {"clean", call.clean},
           {"page_size", call.page_size}},
          stream);
}

void mqa_topk(const MqaTopk& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mqa_topk_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"weights", call.weights},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"page_table", call.page_table},
           {"indices", call.indices},
           {"values", call.values},
           {"workspace", call.workspace}},
          {{"topk", call.topk},
           {"order", call.order},
           {"page_size", call.page_size},
           {"relative", call.relative},
           {"save_values", call.save_values}},
          stream);
}

TensorView workspace_of(const MqaTopk& call) {
  static const OpInfo& op = table_of(parsed(mqa_topk_op));
  return workspace_of(op,
          {{"q", call.q},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"weights", call.weights},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"page_table", call.page_table},
           {"indices", call.indices},
           {"values", call.values},
           {"workspace", call.workspace}},
          {},
          {{"topk", call.topk},
           {"order", call.order},
           {"page_size", call.page_size},
           {"relative", call.relative},
           {"save_values", call.save_values}});
}

void paged_mqa_topk(const PagedMqaTopk& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(paged_mqa_topk_op));
  call_op(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"weights", call.weights},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"values", call.values},
           {"workspace", call.workspace}},
          {{"max_len", call.max_len},
           {"topk", call.topk},
           {"order", call.order},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"save_values", call.save_values}},
          stream);
}

TensorView workspace_of(const PagedMqaTopk& call) {
  static const OpInfo& op = table_of(parsed(paged_mqa_topk_op));
  return workspace_of(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"weights", call.weights},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"values", call.values},
           {"workspace", call.workspace}},
          {},
          {{"max_len", call.max_len},
           {"topk", call.topk},
           {"order", call.order},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"save_values", call.save_values}});
}

void candidate_blocks(const CandidateBlocks& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(candidate_blocks_op));
  call_op(op,
          {{"scores", call.scores},
           {"lengths", call.lengths},
           {"blocks", call.blocks}},
          {{"num_blocks", call.num_blocks},
           {"block_size", call.block_size}},
          stream);
}

void mqa_topk_blocks(const MqaTopkBlocks& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mqa_topk_blocks_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"weights", call.weights},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"page_table", call.page_table},
           {"indices", call.indices},
           {"blocks", call.blocks},
           {"values", call.values},
           {"workspace", call.workspace}},
          {{"topk", call.topk},
           {"num_blocks", call.num_blocks},
           {"block_size", call.block_size},
           {"order", call.order},
           {"page_size", call.page_size},
           {"relative", call.relative},
           {"save_values", call.save_values}},
          stream);
}

TensorView workspace_of(const MqaTopkBlocks& call) {
  static const OpInfo& op = table_of(parsed(mqa_topk_blocks_op));
  return workspace_of(op,
          {{"q", call.q},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"weights", call.weights},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"page_table", call.page_table},
           {"indices", call.indices},
           {"blocks", call.blocks},
           {"values", call.values},
           {"workspace", call.workspace}},
          {},
          {{"topk", call.topk},
           {"num_blocks", call.num_blocks},
           {"block_size", call.block_size},
           {"order", call.order},
           {"page_size", call.page_size},
           {"relative", call.relative},
           {"save_values", call.save_values}});
}

void paged_mqa_topk_blocks(const PagedMqaTopkBlocks& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(paged_mqa_topk_blocks_op));
  call_op(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"weights", call.weights},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"blocks", call.blocks},
           {"values", call.values},
           {"workspace", call.workspace}},
          {{"max_len", call.max_len},
           {"topk", call.topk},
           {"num_blocks", call.num_blocks},
           {"block_size", call.block_size},
           {"order", call.order},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"save_values", call.save_values}},
          stream);
}

TensorView workspace_of(const PagedMqaTopkBlocks& call) {
  static const OpInfo& op = table_of(parsed(paged_mqa_topk_blocks_op));
  return workspace_of(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"weights", call.weights},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"blocks", call.blocks},
           {"values", call.values},
           {"workspace", call.workspace}},
          {},
          {{"max_len", call.max_len},
           {"topk", call.topk},
           {"num_blocks", call.num_blocks},
           {"block_size", call.block_size},
           {"order", call.order},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"save_values", call.save_values}});
}

void sparse_mqa_logits(const SparseMqaLogits& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sparse_mqa_logits_op));
  call_op(op,
          {{"q", call.q},
           {"weights", call.weights},
           {"blocks", call.blocks},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"cache", call.cache},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"logits", call.logits}},
          {{"block_size", call.block_size},
           {"page_size", call.page_size},
           {"format", call.format}},
          stream);
}

void sparse_mqa_topk(const SparseMqaTopk& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sparse_mqa_topk_op));
  call_op(op,
          {{"q", call.q},
           {"weights", call.weights},
           {"blocks", call.blocks},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"cache", call.cache},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"workspace", call.workspace}},
          {{"topk", call.topk},
           {"order", call.order},
           {"block_size", call.block_size},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"relative", call.relative},
           {"format", call.format}},
          stream);
}

TensorView workspace_of(const SparseMqaTopk& call) {
  static const OpInfo& op = table_of(parsed(sparse_mqa_topk_op));
  return workspace_of(op,
          {{"q", call.q},
           {"weights", call.weights},
           {"blocks", call.blocks},
           {"k", call.k},
           {"k_sf", call.k_sf},
           {"k_start", call.k_start},
           {"k_end", call.k_end},
           {"cache", call.cache},
           {"lengths", call.lengths},
           {"page_table", call.page_table},
           {"out_page_table", call.out_page_table},
           {"indices", call.indices},
           {"workspace", call.workspace}},
          {},
          {{"topk", call.topk},
           {"order", call.order},
           {"block_size", call.block_size},
           {"page_size", call.page_size},
           {"out_page_size", call.out_page_size},
           {"relative", call.relative},
           {"format", call.format}});
}

void attention_fwd(const AttentionFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(attention_fwd_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"q_lengths", call.q_lengths},
           {"k_lengths", call.k_lengths},
           {"sink", call.sink},
           {"out", call.out},
           {"lse", call.lse}},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap},
           {"split_len", call.split_len}},
          stream);
}

void attention_varlen_fwd(const AttentionVarlenFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(attention_varlen_fwd_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"cu_q", call.cu_q},
           {"cu_k", call.cu_k},
           {"sink", call.sink},
           {"out", call.out},
           {"lse", call.lse}},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap},
           {"split_len", call.split_len}},
          stream);
}

void attention_decode(const AttentionDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(attention_decode_op));
  call_op(op,
          {{"q", call.q},
           {"k_cache", call.k_cache},
           {"v_cache", call.v_cache},
           {"page_table", call.page_table},
           {"lengths", call.lengths},
           {"k_sf", call.k_sf},
           {"v_sf", call.v_sf},
           {"sink", call.sink},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"softcap", call.softcap},
           {"split_len", call.split_len}},
          stream);
}

TensorView workspace_of(const AttentionDecode& call) {
  static const OpInfo& op = table_of(parsed(attention_decode_op));
  return workspace_of(op,
          {{"q", call.q},
           {"k_cache", call.k_cache},
           {"v_cache", call.v_cache},
           {"page_table", call.page_table},
           {"lengths", call.lengths},
           {"k_sf", call.k_sf},
           {"v_sf", call.v_sf},
           {"sink", call.sink},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"softcap", call.softcap},
           {"split_len", call.split_len}});
}

void attention_bwd(const AttentionBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(attention_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"out", call.out},
           {"lse", call.lse},
           {"q_lengths", call.q_lengths},
           {"k_lengths", call.k_lengths},
           {"sink", call.sink},
           {"grad_lse", call.grad_lse},
           {"grad_q", call.grad_q},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_sink", call.grad_sink},
           {"workspace", call.workspace}},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap}},
          stream);
}

TensorView workspace_of(const AttentionBwd& call) {
  static const OpInfo& op = table_of(parsed(attention_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"out", call.out},
           {"lse", call.lse},
           {"q_lengths", call.q_lengths},
           {"k_lengths", call.k_lengths},
           {"sink", call.sink},
           {"grad_lse", call.grad_lse},
           {"grad_q", call.grad_q},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_sink", call.grad_sink},
           {"workspace", call.workspace}},
          {},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap}});
}

void attention_varlen_bwd(const AttentionVarlenBwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(attention_varlen_bwd_op));
  call_op(op,
          {{"grad_out", call.grad_out},
           {"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"out", call.out},
           {"lse", call.lse},
           {"cu_q", call.cu_q},
           {"cu_k", call.cu_k},
           {"sink", call.sink},
           {"grad_lse", call.grad_lse},
           {"grad_q", call.grad_q},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_sink", call.grad_sink},
           {"workspace", call.workspace}},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap}},
          stream);
}

TensorView workspace_of(const AttentionVarlenBwd& call) {
  static const OpInfo& op = table_of(parsed(attention_varlen_bwd_op));
  return workspace_of(op,
          {{"grad_out", call.grad_out},
           {"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"out", call.out},
           {"lse", call.lse},
           {"cu_q", call.cu_q},
           {"cu_k", call.cu_k},
           {"sink", call.sink},
           {"grad_lse", call.grad_lse},
           {"grad_q", call.grad_q},
           {"grad_k", call.grad_k},
           {"grad_v", call.grad_v},
           {"grad_sink", call.grad_sink},
           {"workspace", call.workspace}},
          {},
          {{"scale", call.scale},
           {"causal", call.causal},
           {"window_left", call.window_left},
           {"window_right", call.window_right},
           {"softcap", call.softcap}});
}

void mla_decode(const MlaDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mla_decode_op));
  call_op(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"page_table", call.page_table},
           {"lengths", call.lengths},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {{"sm_scale", call.sm_scale},
           {"causal", call.causal},
           {"split_len", call.split_len},
           {"out_dtype", call.out_dtype}},
          stream);
}

TensorView workspace_of(const MlaDecode& call) {
  static const OpInfo& op = table_of(parsed(mla_decode_op));
  return workspace_of(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"page_table", call.page_table},
           {"lengths", call.lengths},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {},
          {{"sm_scale", call.sm_scale},
           {"causal", call.causal},
           {"split_len", call.split_len},
           {"out_dtype", call.out_dtype}});
}

void mla_combine(const MlaCombine& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(mla_combine_op));
  call_op(op,
          {{"partial", call.partial},
           {"partial_max", call.partial_max},
           {"partial_sum", call.partial_sum},
           {"attn_sink", call.attn_sink},
           {"out", call.out},
           {"lse", call.lse}},
          {{"num_heads", call.num_heads},
           {"out_dtype", call.out_dtype}},
          stream);
}

void sparse_mla_fwd(const SparseMlaFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sparse_mla_fwd_op));
  call_op(op,
          {{"q", call.q},
           {"kv", call.kv},
           {"indices", call.indices},
           {"topk_length", call.topk_length},
           {"attn_sink", call.attn_sink},
           {"q_scale", call.q_scale},
           {"out", call.out},
           {"max_logits", call.max_logits},
           {"lse", call.lse}},
          {{"sm_scale", call.sm_scale},
           {"out_dtype", call.out_dtype}},
          stream);
}

void sparse_mla_decode(const SparseMlaDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(sparse_mla_decode_op));
  call_op(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"indices", call.indices},
           {"topk_length", call.topk_length},
           {"extra_cache", call.extra_cache},
           {"extra_indices", call.extra_indices},
           {"extra_length", call.extra_length},
           {"attn_sink", call.attn_sink},
           {"q_scale", call.q_scale},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {{"format", call.format},
           {"page_size", call.page_size},
           {"extra_format", call.extra_format},
           {"extra_page_size", call.extra_page_size},
           {"cache_order", call.cache_order},
           {"sm_scale", call.sm_scale},
           {"num_splits", call.num_splits},
           {"out_dtype", call.out_dtype}},
          stream);
}

TensorView workspace_of(const SparseMlaDecode& call) {
  static const OpInfo& op = table_of(parsed(sparse_mla_decode_op));
  return workspace_of(op,
          {{"q", call.q},
           {"cache", call.cache},
           {"indices", call.indices},
           {"topk_length", call.topk_length},
           {"extra_cache", call.extra_cache},
           {"extra_indices", call.extra_indices},
           {"extra_length", call.extra_length},
           {"attn_sink", call.attn_sink},
           {"q_scale", call.q_scale},
           {"out", call.out},
           {"lse", call.lse},
           {"workspace", call.workspace}},
          {},
          {{"format", call.format},
           {"page_size", call.page_size},
           {"extra_format", call.extra_format},
           {"extra_page_size", call.extra_page_size},
           {"cache_order", call.cache_order},
           {"sm_scale", call.sm_scale},
           {"num_splits", call.num_splits},
           {"out_dtype", call.out_dtype}});
}

void causal_conv1d_fwd(const CausalConv1dFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(causal_conv1d_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"weight", call.weight},
           {"bias", call.bias},
           {"initial_state", call.initial_state},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"final_state", call.final_state},
           {"pool", call.pool}},
          {{"activation", call.activation},
           {"output_final_state", call.output_final_state}},
          stream);
}

void causal_conv1d_update(const CausalConv1dUpdate& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(causal_conv1d_update_op));
  call_op(op,
          {{"x", call.x},
           {"weight", call.weight},
           {"bias", call.bias},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"pool", call.pool}},
          {{"activation", call.activation}},
          stream);
}

void rmsnorm_gated_fwd(const RmsnormGatedFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(rmsnorm_gated_fwd_op));
  call_op(op,
          {{"x", call.x},
           {"z", call.z},
           {"weight", call.weight},
           {"out", call.out}},
          {{"eps", call.eps},
           {"activation", call.activation}},
          stream);
}

void gated_delta_fwd(const GatedDeltaFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gated_delta_fwd_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"g", call.g},
           {"beta", call.beta},
           {"lengths", call.lengths},
           {"initial_state", call.initial_state},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"final_state", call.final_state},
           {"pool", call.pool},
           {"workspace", call.workspace}},
          {{"scale", call.scale},
           {"qk_norm", call.qk_norm},
           {"norm_eps", call.norm_eps},
           {"segment", call.segment},
           {"output_final_state", call.output_final_state}},
          stream);
}

TensorView workspace_of(const GatedDeltaFwd& call) {
  static const OpInfo& op = table_of(parsed(gated_delta_fwd_op));
  return workspace_of(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"g", call.g},
           {"beta", call.beta},
           {"lengths", call.lengths},
           {"initial_state", call.initial_state},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"final_state", call.final_state},
           {"pool", call.pool},
           {"workspace", call.workspace}},
          {},
          {{"scale", call.scale},
           {"qk_norm", call.qk_norm},
           {"norm_eps", call.norm_eps},
           {"segment", call.segment},
           {"output_final_state", call.output_final_state}});
}

void gated_delta_varlen_fwd(const GatedDeltaVarlenFwd& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gated_delta_varlen_fwd_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"g", call.g},
           {"beta", call.beta},
           {"cu_seqlens", call.cu_seqlens},
           {"initial_state", call.initial_state},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"final_state", call.final_state},
           {"pool", call.pool},
           {"workspace", call.workspace}},
          {{"scale", call.scale},
           {"qk_norm", call.qk_norm},
           {"norm_eps", call.norm_eps},
           {"segment", call.segment},
           {"output_final_state", call.output_final_state}},
          stream);
}

TensorView workspace_of(const GatedDeltaVarlenFwd& call) {
  static const OpInfo& op = table_of(parsed(gated_delta_varlen_fwd_op));
  return workspace_of(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"g", call.g},
           {"beta", call.beta},
           {"cu_seqlens", call.cu_seqlens},
           {"initial_state", call.initial_state},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"final_state", call.final_state},
           {"pool", call.pool},
           {"workspace", call.workspace}},
          {},
          {{"scale", call.scale},
           {"qk_norm", call.qk_norm},
           {"norm_eps", call.norm_eps},
           {"segment", call.segment},
           {"output_final_state", call.output_final_state}});
}

void gated_delta_decode(const GatedDeltaDecode& call, Stream stream) {
  static const OpInfo& op = table_of(parsed(gated_delta_decode_op));
  call_op(op,
          {{"q", call.q},
           {"k", call.k},
           {"v", call.v},
           {"g", call.g},
           {"beta", call.beta},
           {"read_slots", call.read_slots},
           {"write_slots", call.write_slots},
           {"out", call.out},
           {"pool", call.pool}},
          {{"scale", call.scale},
           {"qk_norm", call.qk_norm},
           {"norm_eps", call.norm_eps}},
          stream);
}

}  // namespace tessera::kernels
