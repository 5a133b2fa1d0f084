#include "tests/reference/ops.h"

#include <algorithm>

#include "dsl/base/error.h"
#include "tests/reference/attention.h"
#include "tests/reference/conv.h"
#include "tests/reference/e5m6.h"
#include "tests/reference/engram.h"
#include "tests/reference/engram_bwd.h"
#include "tests/reference/engram_sinkhorn.h"
#include "tests/reference/gated_delta.h"
#include "tests/reference/gemm.h"
#include "tests/reference/get_fused_mapping.h"
#include "tests/reference/mhc.h"
#include "tests/reference/mhc_boundary.h"
#include "tests/reference/mhc_bwd.h"
#include "tests/reference/mhc_head.h"
#include "tests/reference/mhc_mix_bwd.h"
#include "tests/reference/mhc_pre.h"
#include "tests/reference/mhc_streams_bwd.h"
#include "tests/reference/mla.h"
#include "tests/reference/modeling.h"
#include "tests/reference/moe.h"
#include "tests/reference/multilayer_recompute.h"
#include "tests/reference/mxfp4.h"
#include "tests/reference/norm_fn_bwd.h"
#include "tests/reference/per_block_cast.h"
#include "tests/reference/per_channel_cast.h"
#include "tests/reference/per_token_cast.h"
#include "tests/reference/routing.h"
#include "tests/reference/serving.h"
#include "tests/reference/swiglu.h"
#include "tests/reference/top2_sum_gate.h"
#include "tests/reference/topk_gate.h"
#include "tests/reference/transpose.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  if (found == params.end() || std::holds_alternative<std::monostate>(found->second)) {
    return fallback;
  }
  return std::get<T>(found->second);
}

HostTensors run_per_token_cast(const HostTensors& inputs, const Params& params) {
  CastOptions options;
  options.format = dtype_from_name(param<std::string>(params, "format", "e4m3")).value();
  options.num_per_channels = param<int64_t>(params, "num_per_channels", 0);
  const auto block = param<std::vector<int64_t>>(params, "x_block_size", {});
  if (!block.empty()) options.x_block_size = Dims(std::span<const int64_t>(block));
  options.x_sf_layout = sf_layout_of(param<std::string>(params, "x_sf_layout", "row_major"));
  options.sf_layout = sf_layout_of(param<std::string>(params, "sf_layout", "row_major"));
  options.round_sf = param<bool>(params, "round_sf", false);
  const auto x_sf = inputs.find("x_sf");
  CastResult result =
      per_token_cast(inputs.at("x"), x_sf == inputs.end() ? nullptr : &x_sf->second, options);
  HostTensors outputs;
  outputs["out"] = std::move(result.out);
  outputs["out_sf"] = std::move(result.out_sf);
  return outputs;
}

HostTensors run_with_sf_only(const HostTensors& inputs, const Params& params) {
  HostTensors outputs = run_per_token_cast(inputs, params);
  outputs.erase("out");
  return outputs;
}

HostTensors run_with_precomputed_sf(const HostTensors& inputs, const Params& params) {
  const auto format = dtype_from_name(param<std::string>(params, "format", "e4m3")).value();
  return {
      {"out", per_token_cast_with_precomputed_sf(inputs.at("x"), inputs.at("sf"), format,
                                                 param<int64_t>(params, "num_per_channels", 0))}};
}

BlockCastOptions block_options(const Params& params) {
  const auto block = param<std::vector<int64_t>>(params, "block_size", {});
  BlockCastOptions options;
  options.format = dtype_from_name(param<std::string>(params, "format", "e4m3")).value();
  options.block = Dims(std::span<const int64_t>(block));
  options.sf_layout = sf_layout_of(param<std::string>(params, "sf_layout", "row_major"));
  options.round_sf = param<bool>(params, "round_sf", false);
  return options;
}

HostTensors run_per_block_cast(const HostTensors& inputs, const Params& params) {
  CastResult result = per_block_cast(inputs.at("x"), block_options(params));
  return {{"out", std::move(result.out)}, {"out_sf", std::move(result.out_sf)}};
}

HostTensors run_block_sf_only(const HostTensors& inputs, const Params& params) {
  return {{"out_sf", per_block_cast(inputs.at("x"), block_options(params)).out_sf}};
}

HostTensors run_block_with_precomputed_sf(const HostTensors& inputs, const Params& params) {
  const BlockCastOptions options = block_options(params);
  return {{"out", per_block_cast_with_precomputed_sf(inputs.at("x"), inputs.at("sf"),
                                                     options.format, options.block)}};
}

HostTensors run_lossless(const HostTensors& inputs, const Params& params) {
  const auto block = [&](const char* name) {
    const auto sizes = param<std::vector<int64_t>>(params, name, {});
    return Dims(std::span<const int64_t>(sizes));
  };
  CastResult result =
      per_block_cast_lossless(inputs.at("x"), inputs.at("x_sf"),
                              {block("x_block_size"), block("out_block_size"),
                               sf_layout_of(param<std::string>(params, "x_sf_layout", "row_major")),
                               sf_layout_of(param<std::string>(params, "sf_layout", "row_major"))});
  return {{"out", std::move(result.out)}, {"out_sf", std::move(result.out_sf)}};
}

HostTensors run_unpack(const HostTensors& inputs, const Params& params) {
  const auto out_dtype = dtype_from_name(param<std::string>(params, "out_dtype", "f32")).value();
  return {{"out", unpack_from_e2m1fn_x2(inputs.at("x"), out_dtype)}};
}

const HostTensor* optional_input(const HostTensors& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? nullptr : &found->second;
}

HostTensors run_norm_fn_fwd(const HostTensors& inputs, const Params& params) {
  NormFnResult result =
      norm_fn_fwd(inputs.at("residual"), inputs.at("fn"), optional_input(inputs, "norm_weight"),
                  param<double>(params, "norm_eps", 1e-6));
  HostTensors outputs = {{"out", std::move(result.out)}};
  if (param<bool>(params, "save_for_backward", true)) {
    outputs["out_mul"] = std::move(result.out_mul);
    outputs["sqrsum"] = std::move(result.sqrsum);
  }
  return outputs;
}

HostTensors run_norm_fn_bwd(const HostTensors& inputs, const Params& params) {
  const HostTensor& residual = inputs.at("residual");
  const HostTensor& fn = inputs.at("fn");
  const HostTensor* norm_weight = optional_input(inputs, "norm_weight");
  const auto given = [&](const std::string& name, const HostTensor& like) {
    if (const HostTensor* tensor = optional_input(inputs, name)) return *tensor;
    HostTensor zeros(like.dtype(), like.shape());
    zeros.fill_bytes(std::byte{0});
    return zeros;
  };
  NormFnGradients start{given("grad_residual", residual), given("grad_fn", fn), {}};
  if (norm_weight != nullptr) start.norm_weight = given("grad_norm_weight", *norm_weight);
  NormFnGradients grad = norm_fn_bwd(
      {inputs.at("grad_out"), residual, fn, norm_weight, inputs.at("out_mul"), inputs.at("sqrsum")},
      std::move(start), param<double>(params, "norm_eps", 1e-6));
  HostTensors outputs = {{"grad_residual", std::move(grad.residual)},
                         {"grad_fn", std::move(grad.fn)}};
  if (norm_weight != nullptr) outputs["grad_norm_weight"] = std::move(grad.norm_weight);
  return outputs;
}

HostTensors run_pre_big_fuse(const HostTensors& inputs, const Params& params) {
  PreBigFuseOptions options;
  options.norm_eps = param<double>(params, "norm_eps", 1e-6);
  options.pre_eps = param<double>(params, "pre_eps", 1e-6);
  options.sinkhorn_eps = param<double>(params, "sinkhorn_eps", 1e-6);
  options.post_mult = param<double>(params, "post_mult_value", 1);
  options.sinkhorn_repeat = param<int64_t>(params, "sinkhorn_repeat", 10);
  PreBigFuseResult result =
      pre_big_fuse(inputs.at("residual"), inputs.at("fn"), inputs.at("scale"), inputs.at("base"),
                   optional_input(inputs, "norm_weight"), options);
  return {{"post_mix", std::move(result.post_mix)},
          {"comb_mix", std::move(result.comb_mix)},
          {"layer_input", std::move(result.layer_input)}};
}

HostTensors run_pre_split_mixes_bwd(const HostTensors& in, const Params& params) {
  SplitMixGradients grad =
      pre_split_mixes_bwd({in.at("grad_pre_mix"), in.at("grad_post_mix"), in.at("grad_comb_logits"),
                           in.at("input_mixes"), in.at("post_mix"), in.at("scale"), in.at("base"),
                           optional_input(in, "grad_scale"), optional_input(in, "grad_base")},
                          param<double>(params, "post_mult_value", 1));
  return {{"grad_input_mixes", std::move(grad.input_mixes)},
          {"grad_scale", std::move(grad.scale)},
          {"grad_base", std::move(grad.base)}};
}

HostTensors run_head_compute_mix_bwd(const HostTensors& in, const Params&) {
  HeadGradients grad =
      head_compute_mix_bwd(in.at("grad_out"), in.at("input_mix"), in.at("scale"), in.at("base"),
                           optional_input(in, "grad_scale"), optional_input(in, "grad_base"));
  return {{"grad_input_mix", std::move(grad.input_mix)},
          {"grad_scale", std::move(grad.scale)},
          {"grad_base", std::move(grad.base)}};
}

HostTensors run_cast_back(const HostTensors& inputs, const Params& params) {
  const auto block = param<std::vector<int64_t>>(
      params, "x_block_size", {1, param<int64_t>(params, "num_per_channels", 0)});
  return {
      {"out", cast_back(inputs.at("x"), inputs.at("x_sf"),
                        sf_layout_of(param<std::string>(params, "x_sf_layout", "row_major")),
                        Dims(std::span<const int64_t>(block)),
                        dtype_from_name(param<std::string>(params, "out_dtype", "bf16")).value())}};
}

HostTensors run_to_e5m6(const HostTensors& inputs, const Params& params) {
  E5m6Result result = per_token_cast_to_e5m6(
      inputs.at("x"), sf_layout_of(param<std::string>(params, "sf_layout", "row_major")),
      param<bool>(params, "round_sf", false));
  return {{"out", std::move(result.out)}, {"out_sf", std::move(result.out_sf)}};
}

HostTensors run_cast_back_e5m6(const HostTensors& inputs, const Params& params) {
  const test::HostTensor& x = inputs.at("x");
  const int64_t hidden = x.shape()[1] / 3 * 2;
  const auto block =
      param<std::vector<int64_t>>(params, "x_block_size", {1, std::max<int64_t>(hidden, 1)});
  return {{"out", cast_back_e5m6(
                      x, inputs.at("x_sf"),
                      sf_layout_of(param<std::string>(params, "x_sf_layout", "row_major")),
                      Dims(std::span<const int64_t>(block)),
                      dtype_from_name(param<std::string>(params, "out_dtype", "bf16")).value())}};
}

const test::HostTensor* optional(const HostTensors& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? nullptr : &found->second;
}

std::optional<float> number(const Params& params, const std::string& name) {
  const auto found = params.find(name);
  if (found == params.end() || std::holds_alternative<std::monostate>(found->second)) return {};
  return static_cast<float>(std::get<double>(found->second));
}

HostTensors outputs_of(ChannelCastResult result) {
  return {{"out", std::move(result.out)}, {"out_sf", std::move(result.out_sf)}};
}

HostTensors run_per_channel_cast(const HostTensors& inputs, const Params& params) {
  const HostTensor rows =
      gathered_rows(inputs.at("x"), optional(inputs, "x_sf"), optional(inputs, "pos_to_token"));
  return outputs_of(per_channel_cast(rows, 128, param<bool>(params, "round_sf", false)));
}

HostTensors run_swiglu_channels(const HostTensors& inputs, const Params& params, bool transposed) {
  const HostTensor rows = swiglu_rows(inputs.at("x"), number(params, "swiglu_clamp_value"));
  const auto run = param<int64_t>(params, "num_per_tokens", 0);
  const bool round_sf = param<bool>(params, "round_sf", false);
  return outputs_of(transposed ? per_channel_cast_and_transpose(rows, run, round_sf)
                               : per_channel_cast(rows, run, round_sf));
}

HostTensors run_swiglu_backward(const HostTensors& inputs, const Params& params) {
  SwigluBackwardResult result = swiglu_backward(
      {inputs.at("x"), inputs.at("x_sf"), inputs.at("grad_out"), inputs.at("weight"),
       inputs.at("pos_to_token_topk"), inputs.at("token_topk_to_pos")},
      param<int64_t>(params, "num_per_channels", 0), param<bool>(params, "round_sf", false),
      number(params, "swiglu_clamp_value"));
  return {{"out", std::move(result.out)},
          {"grad_x_fp8", std::move(result.grad_x_cast.out)},
          {"grad_x_fp8_sf", std::move(result.grad_x_cast.out_sf)},
          {"grad_x", std::move(result.grad_x)},
          {"grad_weight", std::move(result.grad_weight)}};
}

HostTensors run_swiglu(const HostTensors& inputs, const Params& params) {
  SwigluOptions options;
  options.num_per_channels = param<int64_t>(params, "num_per_channels", 0);
  options.sf_layout = sf_layout_of(param<std::string>(params, "sf_layout", "row_major"));
  options.round_sf = param<bool>(params, "round_sf", false);
  options.clamp_value = number(params, "swiglu_clamp_value");
  options.sf_clamp_min = number(params, "sf_clamp_min");
  SwigluResult result = swiglu_forward_and_per_token_cast(
      inputs.at("x"),
      {optional(inputs, "pos_to_token_topk"), optional(inputs, "topk_weights"),
       optional(inputs, "pos_to_expert")},
      options);
  HostTensors outputs = {{"out", std::move(result.cast.out)},
                         {"out_sf", std::move(result.cast.out_sf)}};
  if (const auto* count = optional(inputs, "clamped_count")) {
    test::HostTensor& sum = outputs.try_emplace("clamped_count", *count).first->second;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t more = result.clamped_count[static_cast<size_t>(i)];
      sum.set_bits(i, sum.bits(i) + static_cast<uint64_t>(more));
    }
  }
  return outputs;
}

HostTensors run_expand(const HostTensors& inputs, const Params& params) {
  Expanded result = expand_to_fused_with_sf(
      inputs.at("x"), inputs.at("x_sf"), inputs.at("token_topk_to_pos"), inputs.at("pos_to_expert"),
      sf_layout_of(param<std::string>(params, "sf_layout", "row_major")));
  return {{"out", std::move(result.out)}, {"out_sf", std::move(result.out_sf)}};
}

HostTensors run_reduce(const HostTensors& inputs, const Params& params) {
  const bool e4m3 = param<std::string>(params, "format", "none") == "e4m3";
  return {
      {"out", reduce_fused(inputs.at("x"), optional(inputs, "x_sf"),
                           optional(inputs, "topk_weights"), inputs.at("token_topk_to_pos"),
                           optional(inputs, "sf"), e4m3 ? DType::e4m3 : inputs.at("x").dtype())}};
}

HostTensors run_gate(const HostTensors& inputs, const Params& params) {
  GateOptions o;
  o.num_topk = param<int64_t>(params, "num_topk", 0);
  o.num_topk_groups = param<int64_t>(params, "num_topk_groups", 0);
  o.num_groups = param<int64_t>(params, "num_groups", 0);
  if (param<bool>(params, "use_shared_as_routed", false)) {
    o.num_shared = param<int64_t>(params, "num_shared_experts", 0);
  }
  o.routed_scaling_factor = param<double>(params, "routed_scaling_factor", 1);
  o.ep_rank = param<int64_t>(params, "ep_rank", 0);
  o.num_ep_ranks = param<int64_t>(params, "num_ep_ranks", 1);
  o.tp_rank = param<int64_t>(params, "tp_rank", 0);
  o.num_tp_ranks = param<int64_t>(params, "num_tp_ranks", 1);
  o.scoring_func = param<std::string>(params, "scoring_func", "");
  return top2_sum_gate(inputs, o);
}

HostTensors run_engram_gate(const HostTensors& inputs, const Params& params) {
  EngramGate gate = engram_gate_fwd(inputs.at("hidden_states"), inputs.at("k"), inputs.at("v"),
                                    inputs.at("weight_fused"), param<double>(params, "eps", 0),
                                    param<double>(params, "clamp_value", 1e-6),
                                    optional_input(inputs, "image_token_mask"));
  HostTensors outputs = {{"out", std::move(gate.out)}};
  if (!param<bool>(params, "save_for_backward", true)) return outputs;
  outputs["dot"] = std::move(gate.dot);
  outputs["gate_score"] = std::move(gate.gate_score);
  outputs["rstd_x"] = std::move(gate.rstd_x);
  outputs["rstd_k"] = std::move(gate.rstd_k);
  return outputs;
}

}  // namespace

Runner runner(const std::string& op) {
  if (op == "transpose" || op == "batched_transpose") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", transpose(inputs.at("x"))}};
    };
  }
  if (op == "topk_gate") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"topk_idx", topk_gate(inputs.at("scores"), param<int64_t>(params, "num_topk", 0))}};
    };
  }
  if (op == "topk_sum_and_topk_group_idx") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"topk_group_idx", topk_sum_and_topk_group_idx(
                                 inputs.at("scores"), param<int64_t>(params, "num_topk_sum", 0),
                                 param<int64_t>(params, "num_topk_groups", 0))}};
    };
  }
  if (op == "normalize_weight") {
    return [](const HostTensors& inputs, const Params&) {
      NormalizedWeights result = normalize_weight(inputs.at("topk_weights"));
      return HostTensors{{"denominator", std::move(result.denominator)},
                         {"normalized_weights", std::move(result.normalized)}};
    };
  }
  if (op == "mask_indices_by_tp") {
    return [](const HostTensors& inputs, const Params& params) {
      const TpRanks ranks{
          param<int64_t>(params, "num_experts", 0), param<int64_t>(params, "num_ep_ranks", 0),
          param<int64_t>(params, "tp_rank", 0), param<int64_t>(params, "num_tp_ranks", 0)};
      return HostTensors{{"masked_indices", mask_indices_by_tp(inputs.at("indices"), ranks)}};
    };
  }
  if (op == "inplace_unique_group_indices") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"group_indices", inplace_unique_group_indices(inputs.at("group_indices"),
                                                         param<int64_t>(params, "num_groups", 0))}};
    };
  }
  if (op == "group_count") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"out", group_count(inputs.at("group_idx"), param<int64_t>(params, "num_groups", 0))}};
    };
  }
  if (op == "aux_fi") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"out", aux_fi(inputs.at("topk_idx"), param<int64_t>(params, "num_experts", 0),
                         param<int64_t>(params, "num_aux_topk", 1))}};
    };
  }
  if (op == "expand_to_fused") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", expand_to_fused(inputs.at("x"), inputs.at("token_topk_to_pos"),
                                                 inputs.at("pos_to_expert"))}};
    };
  }
  if (op == "expand_to_fused_with_sf") return run_expand;
  if (op == "get_fused_mapping") {
    return [](const HostTensors& inputs, const Params& params) {
      const int64_t capacity = param<int64_t>(params, "num_expanded_tokens", 0);
      const bool as_needed = capacity == 0 && !param<bool>(params, "force_no_sync", false);
      return get_fused_mapping(inputs.at("topk_idx"), param<int64_t>(params, "num_experts", 0),
                               param<int64_t>(params, "alignment", 1), as_needed ? -1 : capacity);
    };
  }
  if (op == "reduce_fused") return run_reduce;
  if (op == "top2_sum_gate") return run_gate;
  if (op == "fused_weight") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{
          {"weight_fused", fused_weight(inputs.at("weight_hidden"), inputs.at("weight_embed"))}};
    };
  }
  if (op == "grad_w_reduce") {
    return [](const HostTensors& inputs, const Params&) { return grad_w_reduce(inputs); };
  }
  if (op == "engram_gate_fwd") return run_engram_gate;
  if (op == "engram_gate_bwd") {
    return [](const HostTensors& inputs, const Params& params) {
      GateGradients grad = engram_gate_bwd(inputs, param<double>(params, "clamp_value", 1e-6),
                                           param<int64_t>(params, "num_persistent_blocks", 1));
      return HostTensors{{"grad_hidden_states", std::move(grad.x)},
                         {"grad_k", std::move(grad.k)},
                         {"grad_v", std::move(grad.v)},
                         {"grad_w_partial", std::move(grad.w)}};
    };
  }
  if (op == "engram_hash") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", engram_hash(inputs.at("ngram_token_ids"), inputs.at("multipliers"),
                                             inputs.at("vocab_sizes"), inputs.at("offsets"),
                                             optional_input(inputs, "image_token_mask"))}};
    };
  }
  if (op == "engram_ngram_ids") {
    return [](const HostTensors& inputs, const Params& params) {
      const HostTensor* history = optional_input(inputs, "history");
      NgramIds result = engram_ngram_ids(inputs.at("token_ids"), inputs.at("row_start"), history,
                                         param<int64_t>(params, "ngram_size", 1),
                                         param<int64_t>(params, "pad_id", -1));
      HostTensors outputs = {{"ngram_token_ids", std::move(result.ids)}};
      if (history != nullptr) outputs["next_history"] = std::move(result.next_history);
      return outputs;
    };
  }
  if (op == "engram_embed") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", engram_embed(inputs.at("ngram_token_ids"),
                                              inputs.at("multipliers"), inputs.at("vocab_sizes"),
                                              inputs.at("offsets"), inputs.at("table"))}};
    };
  }
  if (op == "batched_transpose_weight_sf") {
    return [](const HostTensors& inputs, const Params& params) {
      return batched_transpose_weight_sf(inputs.at("sf"), param<int64_t>(params, "block_size", 32));
    };
  }
  if (op == "engram_make_offsets") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"offsets", engram_make_offsets(inputs.at("vocab_sizes"))}};
    };
  }
  if (op == "per_token_cast") return run_per_token_cast;
  if (op == "per_token_cast_with_sf_only") return run_with_sf_only;
  if (op == "per_token_cast_with_precomputed_sf") return run_with_precomputed_sf;
  if (op == "per_block_cast") return run_per_block_cast;
  if (op == "per_block_cast_with_sf_only") return run_block_sf_only;
  if (op == "per_block_cast_with_precomputed_sf") return run_block_with_precomputed_sf;
  if (op == "per_block_cast_lossless") return run_lossless;
  if (op == "unpack_from_e2m1fn_x2") return run_unpack;
  if (op == "cast_back" || op == "per_token_cast_back") return run_cast_back;
  if (op == "per_token_cast_to_e5m6") return run_to_e5m6;
  if (op == "cast_back_e5m6") return run_cast_back_e5m6;
  if (op == "swiglu_forward_and_per_token_cast") return run_swiglu;
  if (op == "swiglu_backward_and_per_token_cast") return run_swiglu_backward;
  if (op == "swiglu_forward_and_per_channel_cast" ||
      op == "swiglu_forward_and_per_channel_cast_and_transpose") {
    const bool transposed = op.ends_with("_and_transpose");
    return [=](const HostTensors& inputs, const Params& params) {
      return run_swiglu_channels(inputs, params, transposed);
    };
  }
  if (op == "per_channel_cast" || op == "per_channel_cast_fused") return run_per_channel_cast;
  if (op == "per_channel_cast_and_transpose") {
    return [](const HostTensors& inputs, const Params& params) {
      return outputs_of(per_channel_cast_and_transpose(inputs.at("x"),
                                                       param<int64_t>(params, "num_per_tokens", 0),
                                                       param<bool>(params, "round_sf", false)));
    };
  }
  if (op == "pre_apply_mix_fwd") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", pre_apply_mix_fwd(inputs.at("x"), inputs.at("mix"))}};
    };
  }
  if (op == "post_fwd") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", post_fwd(inputs.at("x"), inputs.at("residual"),
                                          inputs.at("post_mix"), inputs.at("comb_mix"))}};
    };
  }
  if (op == "expand_to_mhc_fwd") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"out", expand_to_mhc_fwd(inputs.at("x"), param<int64_t>(params, "mhc_mult", 4))}};
    };
  }
  if (op == "expand_to_mhc_bwd") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"grad_x", expand_to_mhc_bwd(inputs.at("grad_out"))}};
    };
  }
  if (op == "pre_apply_mix_bwd") {
    return [](const HostTensors& inputs, const Params&) {
      ApplyMixGradients grad =
          pre_apply_mix_bwd(inputs.at("grad_out"), inputs.at("x"), inputs.at("mix"),
                            optional_input(inputs, "grad_x"));
      return HostTensors{{"grad_x", std::move(grad.x)}, {"grad_mix", std::move(grad.mix)}};
    };
  }
  if (op == "round_to_tf32") {
    return [](const HostTensors& inputs, const Params&) {
      return HostTensors{{"out", round_to_tf32(inputs.at("x"))}};
    };
  }
  if (op == "sinkhorn_fwd") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{{"out", sinkhorn_fwd(inputs.at("x"), param<int64_t>(params, "repeat", 10),
                                              param<double>(params, "eps", 1e-6))}};
    };
  }
  if (op == "sinkhorn_bwd") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{{"grad_x", sinkhorn_bwd(inputs.at("grad_out"), inputs.at("x"),
                                                 param<int64_t>(params, "repeat", 10),
                                                 param<double>(params, "eps", 1e-6))}};
    };
  }
  if (op == "post_bwd") {
    return [](const HostTensors& inputs, const Params&) {
      PostGradients grad = post_bwd(inputs.at("grad_out"), inputs.at("x"), inputs.at("residual"),
                                    inputs.at("post_mix"), inputs.at("comb_mix"));
      return HostTensors{{"grad_x", std::move(grad.x)},
                         {"grad_residual", std::move(grad.residual)},
                         {"grad_post_mix", std::move(grad.post_mix)},
                         {"grad_comb_mix", std::move(grad.comb_mix)}};
    };
  }
  if (op == "head_compute_mix_fwd") {
    return [](const HostTensors& inputs, const Params& params) {
      return HostTensors{
          {"out", head_compute_mix_fwd(inputs.at("input_mix"), inputs.at("scale"),
                                       inputs.at("base"), param<double>(params, "pre_eps", 1e-6))}};
    };
  }
  if (op == "head_compute_mix_bwd") return run_head_compute_mix_bwd;
  if (op == "pre_split_mixes_bwd") return run_pre_split_mixes_bwd;
  if (op == "norm_fn_fwd") return run_norm_fn_fwd;
  if (op == "norm_fn_bwd") return run_norm_fn_bwd;
  if (op == "pre_big_fuse") return run_pre_big_fuse;
  if (op == "mhc_boundary") return mhc_boundary;
  if (op == "pre_big_fuse_and_norm") return pre_big_fuse_and_norm;
  if (op == "multilayer_recompute") {
    return [](const HostTensors& inputs, const Params&) { return multilayer_recompute(inputs); };
  }
  if (op == "pre_split_mixes_fwd") {
    return [](const HostTensors& inputs, const Params& params) {
      SplitMixes mixes = pre_split_mixes_fwd(
          inputs.at("input_mixes"), inputs.at("scale"), inputs.at("base"),
          param<double>(params, "post_mult_value", 1), param<double>(params, "pre_eps", 1e-6));
      return HostTensors{{"pre_mix", std::move(mixes.pre_mix)},
                         {"post_mix", std::move(mixes.post_mix)},
                         {"comb_logits", std::move(mixes.comb_logits)}};
    };
  }
  if (is_composition(op)) {
    return [op](const HostTensors& inputs, const Params& params) {
      return compose(op, inputs, params, runner);
    };
  }
  if (Runner optimizer = engram_sinkhorn_runner(op)) return optimizer;
  if (Runner attention = attention_runner(op)) return attention;
  if (Runner latent = mla_runner(op)) return latent;
  if (Runner linear = linear_runner(op)) return linear;
  if (Runner delta = gated_delta_runner(op)) return delta;
  if (Runner product = gemm_runner(op)) return product;
  if (Runner product = mxfp4_runner(op)) return product;
  return serving_runner(op);
}

}  // namespace tessera::reference
