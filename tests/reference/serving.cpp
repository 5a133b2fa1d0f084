#include "tests/reference/serving.h"

#include "tests/reference/casts.h"
#include "tests/reference/compressor.h"
#include "tests/reference/hash_gate.h"
#include "tests/reference/hisparse.h"
#include "tests/reference/indexer.h"
#include "tests/reference/kv_cache.h"
#include "tests/reference/kv_compress.h"
#include "tests/reference/moe_serving.h"
#include "tests/reference/moe_topk_gate.h"
#include "tests/reference/norm.h"
#include "tests/reference/pages.h"
#include "tests/reference/rotary.h"
#include "tests/reference/router.h"
#include "tests/reference/swiglu_rows.h"
#include "tests/reference/topk_select.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
}

const HostTensor* given(const HostTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

HostTensors run_hash_gate(const HostTensors& in, const Params& params) {
  HashGateOptions o;
  o.num_shared_experts = param<int64_t>(params, "num_shared_experts", 0);
  o.routed_scaling_factor = param<double>(params, "routed_scaling_factor", 1);
  o.scales_routed = param<std::string>(params, "scale", "shared") == "routed";
  if (param<std::string>(params, "idx_dtype", "i32") == "i64") o.idx_dtype = DType::i64;
  HashedExperts result =
      hash_gate(in.at("token_ids"), in.at("table"), in.at("logits"), given(in, "num_tokens"), o);
  return {{"topk_idx", std::move(result.topk_idx)},
          {"topk_weights", std::move(result.topk_weights)}};
}

HostTensors run_topk_select(const HostTensors& in, const Params& params) {
  SelectOptions o;
  o.topk = param<int64_t>(params, "topk", 1);
  o.by_value = param<std::string>(params, "order", "index") == "value";
  o.page_size = param<int64_t>(params, "page_size", 64);
  o.is_relative = param<bool>(params, "relative", false);
  o.saves_raw = param<bool>(params, "save_raw", false);
  o.saves_values = param<bool>(params, "save_values", false);
  return topk_select(in, o);
}

CompressOptions compress_options(const Params& params) {
  CompressOptions o;
  o.ratio = param<int64_t>(params, "ratio", 4);
  o.ring = param<int64_t>(params, "ring", 8);
  o.max_rollback = param<int64_t>(params, "max_rollback", 0);
  o.state_page_size = param<int64_t>(params, "state_page_size", 0);
  o.page_size = param<int64_t>(params, "page_size", 64);
  o.num_windows = param<int64_t>(params, "num_windows", 0);
  o.num_writes = param<int64_t>(params, "num_writes", 0);
  return o;
}

CompressorOptions compressor_options(const Params& params) {
  CompressorOptions o;
  o.ratio = param<int64_t>(params, "ratio", 4);
  if (param<std::string>(params, "out_dtype", "f32") == "bf16") o.out_dtype = DType::bf16;
  o.save_out = param<bool>(params, "save_out", false);
  o.entry.format = param<std::string>(params, "format", "bf16");
  o.entry.page_size = param<int64_t>(params, "page_size", 64);
  o.entry.norm_eps = static_cast<float>(param<double>(params, "norm_eps", 1e-6));
  o.entry.hadamard = param<bool>(params, "hadamard", false);
  o.entry.halves = param<std::string>(params, "cos_sin_layout", "pairs") == "halves";
  o.entry.in_rows = param<std::string>(params, "cache_order", "planes") == "rows";
  return o;
}

HostTensors run_apply_rotary(const HostTensors& in, const Params& params) {
  RotaryOptions o;
  o.interleaved = param<bool>(params, "interleaved", false);
  o.conjugate = param<bool>(params, "conjugate", false);
  o.position_offset = param<int64_t>(params, "position_offset", 0);
  o.halves = param<std::string>(params, "cos_sin_layout", "halves") == "halves";
  return apply_rotary(in, o);
}

NormOptions norm_options(const Params& params) {
  NormOptions o;
  o.eps = param<double>(params, "norm_eps", 0);
  o.out_scale = param<double>(params, "out_scale", 1);
  o.save_rstd = param<bool>(params, "save_rstd", false);
  o.num_per_channels = param<int64_t>(params, "num_per_channels", 32);
  o.sf_layout = param<std::string>(params, "sf_layout", "row_major");
  o.round_sf = param<bool>(params, "round_sf", false);
  o.save_bf16 = param<bool>(params, "save_bf16", false);
  o.mega_moe_block_m = param<int64_t>(params, "mega_moe_block_m", 0);
  return o;
}

/// The norms.
Runner norm_runner(const std::string& op) {
  using Run = HostTensors (*)(const HostTensors&, const NormOptions&);
  const std::map<std::string, Run> runs = {
      {"norm_fwd", norm_fwd},
      {"norm_fwd_and_per_token_cast", norm_fwd_and_per_token_cast},
      {"norm_bwd", norm_bwd}};
  const auto found = runs.find(op);
  if (found == runs.end()) return nullptr;
  return [run = found->second](const HostTensors& in, const Params& params) {
    return run(in, norm_options(params));
  };
}

SwigluRowsOptions swiglu_options(const Params& params) {
  const auto number = [&](const char* name) -> std::optional<float> {
    const auto found = params.find(name);
    if (found == params.end() || !std::holds_alternative<double>(found->second)) return {};
    return static_cast<float>(std::get<double>(found->second));
  };
  SwigluRowsOptions o;
  if (param<std::string>(params, "out_dtype", "bf16") == "f32") o.out_dtype = DType::f32;
  o.factor = number("routed_scaling_factor");
  o.clamp = number("swiglu_clamp_value");
  o.alignment = param<int64_t>(params, "alignment", 128);
  o.save_out = param<bool>(params, "save_out", false);
  return o;
}

HostTensors run_topk_gate(const HostTensors& in, const Params& params) {
  TopkGateOptions o;
  o.num_topk = param<int64_t>(params, "num_topk", 1);
  if (param<bool>(params, "use_shared_as_routed", false)) {
    o.num_shared = param<int64_t>(params, "num_shared_experts", 0);
  }
  o.routed_scaling_factor = param<double>(params, "routed_scaling_factor", 1);
  o.ep_rank = param<int64_t>(params, "ep_rank", 0);
  o.save_scores = param<bool>(params, "save_scores", false);
  return moe_topk_gate_fwd(in, o);
}

HostTensors run_cast(const HostTensors& in, const Params& params) {
  PlainCastOptions o;
  const std::map<std::string, DType> formats = {
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}, {"e4m3", DType::e4m3}};
  o.out_dtype = formats.at(param<std::string>(params, "out_dtype", "bf16"));
  o.stochastic = param<bool>(params, "stochastic", false);
  o.seed = static_cast<uint32_t>(param<int64_t>(params, "seed", 0));
  return {{"out", cast(in.at("x"), o)}};
}

HostTensors run_round_trip(const HostTensors& in, const Params& params) {
  RoundTripOptions o;
  if (param<std::string>(params, "format", "e4m3") == "e2m1") o.format = DType::e2m1;
  o.num_per_channels = param<int64_t>(params, "num_per_channels", 128);
  o.round_sf = param<bool>(params, "round_sf", false);
  o.e4m3_sf = param<bool>(params, "e4m3_sf", false);
  return {{"x", per_token_cast_and_cast_back(in.at("x"), o)}};
}

/// Slots of paged caches.
Runner pages_runner(const std::string& op) {
  if (op == "gather_pages") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"out", gather_pages(in.at("indices"), in.at("page_table"),
                                              param<int64_t>(params, "page_size", 1))}};
    };
  }
  if (op == "paged_lengths") {
    return [](const HostTensors& in, const Params& params) {
      return paged_lengths(in.at("lengths"), param<int64_t>(params, "ratio", 1),
                           param<int64_t>(params, "page_size", 1));
    };
  }
  if (op == "serving_plan") {
    return [](const HostTensors& in, const Params& params) {
      StepSizes sizes;
      sizes.rows = param<int64_t>(params, "num_rows", 0);
      sizes.ratio = param<int64_t>(params, "ratio", 4);
      sizes.second_ratio = param<int64_t>(params, "second_ratio", 128);
      sizes.page_size = param<int64_t>(params, "page_size", 64);
      return serving_plan(in, sizes);
    };
  }
  if (op != "slot_plan") return nullptr;
  return [](const HostTensors& in, const Params& params) {
    PageSizes sizes;
    sizes.window = param<int64_t>(params, "window_page_size", 1);
    sizes.c4 = param<int64_t>(params, "c4_page_size", 64);
    sizes.c128 = param<int64_t>(params, "c128_page_size", 64);
    return slot_plan(in, sizes);
  };
}

/// The compressor itself.
Runner compressor_runner(const std::string& op) {
  using Run = HostTensors (*)(const HostTensors&, const CompressorOptions&);
  const std::map<std::string, Run> runs = {
      {"compress_fwd",
       [](const HostTensors& in, const CompressorOptions& o) {
         return HostTensors{{"out", compress_fwd(in, o)}};
       }},
      {"compress_state_write",
       [](const HostTensors& in, const CompressorOptions&) {
         return HostTensors{{"state", compress_state_write(in)}};
       }},
      {"compress_decode", compress_decode},
      {"compress_store", compress_store},
      {"compress_decode_store", compress_decode_store},
      {"compress_prefill", compress_prefill}};
  const auto found = runs.find(op);
  if (found == runs.end()) return nullptr;
  return [run = found->second](const HostTensors& in, const Params& params) {
    return run(in, compressor_options(params));
  };
}

}  // namespace

Runner serving_runner(const std::string& op) {
  if (op == "hash_gate") return run_hash_gate;
  if (op == "compress_plan") {
    return [](const HostTensors& in, const Params& params) {
      return compress_plan(in, compress_options(params));
    };
  }
  if (op == "compress_plan_decode") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"plan", compress_plan_decode(in, compress_options(params))}};
    };
  }
  if (op == "topk_select") return run_topk_select;
  if (op == "apply_rotary") return run_apply_rotary;
  if (op == "cast") return run_cast;
  if (op == "per_token_cast_and_cast_back") return run_round_trip;
  if (op == "moe_topk_gate_fwd") return run_topk_gate;
  if (op == "moe_topk_gate_bwd") {
    return [](const HostTensors& in, const Params& params) {
      return moe_topk_gate_bwd(in, param<double>(params, "routed_scaling_factor", 1));
    };
  }
  if (op == "gate_scores_sum") {
    return [](const HostTensors& in, const Params& params) {
      return gate_scores_sum(in, param<int64_t>(params, "num_seqs", 1));
    };
  }
  if (Runner norm = norm_runner(op)) return norm;
  if (Runner indexer = indexer_runner(op)) return indexer;
  if (Runner cache = kv_cache_runner(op)) return cache;
  if (Runner pages = pages_runner(op)) return pages;
  if (Runner swap = hisparse_runner(op)) return swap;
  if (Runner experts = moe_serving_runner(op)) return experts;
  if (Runner router = router_runner(op)) return router;
  if (op == "swiglu_fwd" || op == "swiglu_bwd") {
    return [op](const HostTensors& in, const Params& params) {
      const SwigluRowsOptions o = swiglu_options(params);
      return op == "swiglu_fwd" ? swiglu_fwd(in, o) : swiglu_bwd(in, o);
    };
  }
  if (op == "topk_plan") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"plan", topk_plan(in.at("lengths"), param<int64_t>(params, "topk", 1),
                                            param<int64_t>(params, "max_length", 0))}};
    };
  }
  if (op == "mask_padded_topk") {
    return [](const HostTensors& in, const Params&) { return mask_padded_topk(in); };
  }
  return compressor_runner(op);
}

}  // namespace tessera::reference
