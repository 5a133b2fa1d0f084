#include "tests/reference/serving.h"

#include "tests/reference/compressor.h"
#include "tests/reference/hash_gate.h"
#include "tests/reference/kv_compress.h"
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
  return o;
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
