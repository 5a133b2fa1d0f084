#pragma once
// Inputs of the op tests, one list per op, run on the executor and on the GPU alike.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/call_types.h"
#include "tests/reference/ops.h"
#include "tests/support/compare.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// |got - want| <= atol + rtol * |want|, or, where calc_diff is given, that bound on the tensor:
/// 1 - 2 sum(xy) / sum(xx + yy) <= calc_diff.
struct Tolerance {
  double rtol = 0, atol = 0, calc_diff = 0;
};

struct OpCase {
  std::string label;
  HostTensors inputs;
  kernels::Params params;
  bool may_be_unsupported = false;                   // outside of the domain that the op promises
  std::optional<Tolerance> tolerance = {};           // absent: outputs are compared bit for bit
  std::map<std::string, Tolerance> tolerances = {};  // of outputs that differ from the others
  /// Codes and scales may be one step apart here and there (exp before them), but for outputs with a
  /// tolerance of their own.
  bool quantised = false;
};

/// The case with one of its inputs copied to these strides; the label says so.
OpCase strided(OpCase test, const std::string& tensor, const Dims& strides);

std::vector<OpCase> transpose_cases();
std::vector<OpCase> batched_transpose_cases();
std::vector<OpCase> topk_gate_cases();
std::vector<OpCase> topk_sum_and_topk_group_idx_cases();
std::vector<OpCase> top2_sum_gate_cases();
std::vector<OpCase> normalize_weight_cases();
std::vector<OpCase> mask_indices_by_tp_cases();
std::vector<OpCase> inplace_unique_group_indices_cases();
std::vector<OpCase> group_count_cases();
std::vector<OpCase> aux_fi_cases();
std::vector<OpCase> get_fused_mapping_cases();
std::vector<OpCase> expand_to_fused_cases();
std::vector<OpCase> expand_to_fused_with_sf_cases();
std::vector<OpCase> reduce_fused_cases();
/// All forms, a quantised x among them.
std::vector<OpCase> per_token_cast_cases();
/// Those of per_token_cast with a plain x.
std::vector<OpCase> per_token_cast_with_sf_only_cases();
/// The same x with the scales that per_token_cast gives them, and with hostile ones.
std::vector<OpCase> per_token_cast_with_precomputed_sf_cases();
std::vector<OpCase> cast_back_cases();
std::vector<OpCase> per_token_cast_back_cases();
std::vector<OpCase> per_token_cast_to_e5m6_cases();
std::vector<OpCase> cast_back_e5m6_cases();
std::vector<OpCase> per_block_cast_cases();
std::vector<OpCase> per_block_cast_with_sf_only_cases();
/// The same x with the scales that per_block_cast gives them, and with hostile ones.
std::vector<OpCase> per_block_cast_with_precomputed_sf_cases();
std::vector<OpCase> per_block_cast_lossless_cases();
std::vector<OpCase> per_channel_cast_and_transpose_cases();
std::vector<OpCase> swiglu_forward_and_per_token_cast_cases();
std::vector<OpCase> unpack_from_e2m1fn_x2_cases();
/// Both blocks, extents that words of four do not divide, every exponent, scales that are no powers of two.
std::vector<OpCase> batched_transpose_weight_sf_cases();
std::vector<OpCase> per_channel_cast_cases();
/// With and without each optional tensor, indices that x does not have, runs that are cut short.
std::vector<OpCase> per_channel_cast_fused_cases();
std::vector<OpCase> per_channel_cast_and_transpose_cases();
std::vector<OpCase> swiglu_forward_and_per_token_cast_cases();
/// Cases of both ops that cast columns of the activation.
std::vector<OpCase> swiglu_forward_and_per_channel_cast_cases();
/// Rows and entries that own each other, that do not, and that are not there.
std::vector<OpCase> swiglu_backward_and_per_token_cast_cases();
std::vector<OpCase> fused_weight_cases();
std::vector<OpCase> engram_gate_fwd_cases();
std::vector<OpCase> engram_gate_bwd_cases();
std::vector<OpCase> grad_w_reduce_cases();
std::vector<OpCase> engram_hash_cases();
std::vector<OpCase> engram_make_offsets_cases();
/// Both dtypes of ids, with a history and without, requests of no rows, rows of no request.
std::vector<OpCase> engram_ngram_ids_cases();
/// Rows of one element to several warps, both dtypes, ids that wrap, sizes and offsets out of range.
std::vector<OpCase> engram_embed_cases();
/// All dtypes, with nesterov and without, values at the ends of the formats.
std::vector<OpCase> engram_sinkhorn_momentum_cases();
/// Rows of one warp to several steps of a block, runs of one row to several tiles, no rows, rows of zeros.
std::vector<OpCase> engram_sinkhorn_step_cases();
std::vector<OpCase> engram_sinkhorn_finalize_cases();
std::vector<OpCase> expand_to_mhc_fwd_cases();
std::vector<OpCase> expand_to_mhc_bwd_cases();
std::vector<OpCase> pre_split_mixes_fwd_cases();
std::vector<OpCase> sinkhorn_fwd_cases();
std::vector<OpCase> pre_apply_mix_fwd_cases();
std::vector<OpCase> post_fwd_cases();
std::vector<OpCase> sinkhorn_bwd_cases();
std::vector<OpCase> post_bwd_cases();
std::vector<OpCase> norm_fn_fwd_cases();
std::vector<OpCase> norm_fn_bwd_cases();
std::vector<OpCase> pre_big_fuse_cases();
std::vector<OpCase> pre_big_fuse_and_norm_cases();
std::vector<OpCase> mhc_boundary_cases();
std::vector<OpCase> engram_fwd_cases();
std::vector<OpCase> engram_bwd_cases();
std::vector<OpCase> mhc_pre_fwd_cases();
std::vector<OpCase> mhc_pre_bwd_cases();
std::vector<OpCase> mhc_head_fwd_cases();
std::vector<OpCase> mhc_head_bwd_cases();
std::vector<OpCase> head_compute_mix_fwd_cases();
std::vector<OpCase> head_compute_mix_bwd_cases();
std::vector<OpCase> round_to_tf32_cases();
std::vector<OpCase> pre_apply_mix_bwd_cases();
std::vector<OpCase> pre_split_mixes_bwd_cases();
std::vector<OpCase> multilayer_recompute_cases();
/// Sums that are exact, so that every target has their bits, and others; both layouts of both operands.
std::vector<OpCase> gemm_bf16_cases();
std::vector<OpCase> gemm_fp8_block_cases();
std::vector<OpCase> gemm_fp8_grouped_cases();
std::vector<OpCase> gemm_fp8_masked_cases();
std::vector<OpCase> gemm_fp8_k_grouped_cases();
/// Both operands and folds, bytes at the ends of every window, groups of zeros, NaN.
std::vector<OpCase> mxfp4_prepack_cases();
std::vector<OpCase> mxfp4_decode_cases();
std::vector<OpCase> gemm_mxfp4_cases();
std::vector<OpCase> gemm_mxfp4_grouped_cases();
std::vector<OpCase> gemm_mxfp4_masked_cases();
/// All dtypes and options, rows of padding, tables and tokens with values out of range.
std::vector<OpCase> hash_gate_cases();
std::vector<OpCase> mask_padded_topk_cases();
/// Ties, biases, kept routings, shared experts, replicas, padding.
std::vector<OpCase> moe_topk_gate_fwd_cases();
std::vector<OpCase> moe_topk_gate_bwd_cases();
std::vector<OpCase> gate_scores_sum_cases();
/// Both kinds of pairs, tables and positions; slices of heads, several token dimensions.
std::vector<OpCase> apply_rotary_cases();
/// Short and long rows, with and without each optional tensor, strided rows.
std::vector<OpCase> norm_fwd_cases();
/// The same in all layouts of scales.
std::vector<OpCase> norm_fwd_and_per_token_cast_cases();
std::vector<OpCase> norm_bwd_cases();
/// Every pair of formats, plain and stochastic.
std::vector<OpCase> cast_cases();
std::vector<OpCase> per_token_cast_and_cast_back_cases();
/// Rows of experts with padding between them, ends out of order, clamps and counts.
std::vector<OpCase> swiglu_fwd_cases();
std::vector<OpCase> swiglu_bwd_cases();
/// Pages that are not there, padding, sizes that are no powers of two, the end of 32 bits.
std::vector<OpCase> gather_pages_cases();
std::vector<OpCase> paged_lengths_cases();
std::vector<OpCase> slot_plan_cases();
std::vector<OpCase> serving_plan_cases();
/// Short and long requests, hits and misses, repeats over steps, more tokens than slots, no entries, states
/// and values out of range.
std::vector<OpCase> hisparse_swap_in_cases();
std::vector<OpCase> hisparse_replay_cases();
std::vector<OpCase> hisparse_backup_cases();
/// One block, one cluster and several kernels; ids of both dtypes, tokens that do not count, too few rows.
std::vector<OpCase> moe_plan_cases();
/// All layouts, padding filled and not, pairs that are none, strided rows.
std::vector<OpCase> moe_gather_cast_cases();
std::vector<OpCase> swiglu_psum_cast_cases();
/// With and without weights and a base, strided rows, slots without a row.
std::vector<OpCase> combine_reduce_cases();
/// Both places of the weights, a base, padding tokens, strided rows, experts without tokens and with all of them.
std::vector<OpCase> moe_forward_cases();
/// One chunk of columns and several, tiles cut short, strided rows, NaN and infinities.
std::vector<OpCase> router_logits_cases();
/// Both routings with their options, ties, padding with NaN, logits that are not finite, many tokens.
std::vector<OpCase> moe_gate_cases();
/// Rows at the ends of every tier, ties, hostile scores, all options.
std::vector<OpCase> topk_select_cases();
std::vector<OpCase> topk_plan_cases();
/// Both ratios and pools, chunks of every length, tables with holes and too few columns.
std::vector<OpCase> compress_plan_cases();
std::vector<OpCase> compress_plan_decode_cases();
std::vector<OpCase> compress_fwd_cases();
std::vector<OpCase> compress_state_write_cases();
std::vector<OpCase> compress_decode_cases();
std::vector<OpCase> kv_store_cases();
std::vector<OpCase> kv_load_cases();
std::vector<OpCase> kv_norm_rope_store_cases();
std::vector<OpCase> q_norm_rope_cases();
std::vector<OpCase> index_q_store_cases();
std::vector<OpCase> compress_store_cases();
std::vector<OpCase> compress_decode_store_cases();
std::vector<OpCase> compress_prefill_cases();

/// The cases of one op by its name. Errors: std::out_of_range for an op without.
std::vector<OpCase> cases_of(const std::string& op);

/// How one output of a case is compared: bit for bit without either.
struct CompareRule {
  bool quantised = false;
  std::optional<Tolerance> tolerance = {};
};
CompareRule compare_rule(const OpCase& test, const std::string& output);

/// Compares the outputs of one run with those of the reference as the case says, and their strides.
Comparison compare_outputs(const OpCase& test, const HostTensors& want, const HostTensors& got);

/// Runs `got` and the reference of `op` on one case and compares the outputs.
Comparison compare_with_reference(const std::string& op, const OpCase& test,
                                  const reference::Runner& got);

/// The outcome of a list of cases.
struct CaseReport {
  int passed = 0;
  std::vector<std::string> failures;     // "label: report"
  std::vector<std::string> unsupported;  // "label: the error", only cases that may be
};

/// Runs all cases; an Error of kind unsupported counts as unsupported where the case allows it, all
/// else fails.
CaseReport run_cases(const std::string& op, const std::vector<OpCase>& cases,
                     const reference::Runner& got);

}  // namespace tessera::test
