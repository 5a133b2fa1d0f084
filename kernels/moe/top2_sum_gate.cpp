// top2_sum_gate: the router of a mixture of experts.
//
// Shapes   logits [tokens, experts], bias [experts], topk_idx and topk_weights [tokens, slots] with
//          slots = num_topk + shared experts; the rest in top2_sum_gate.h
// Dtypes   f32, ids i64, maps i32, masks bool
// Method   one warp per token: lane l holds experts 128 i + 4 l + j. All lanes share the work of
//          ranking the groups; num_topk rounds take the best key of the warp by two warp reductions
//          over runs of four keys that every lane has sorted. Slot s then belongs to lane s, which
//          fetches the logit of its expert again, so that no scores stay in registers. Few bytes:
//          with few tokens the bound is the latency of one load and of the rounds, with thousands
//          the instructions.
// Maths    weight = score / (1e-20 + scores in rank order) * scale; see expert_score.h
// Tuned    H200: 4 warps per block, so that even 128 tokens spread over 32 SMs.

#include "kernels/moe/top2_sum_gate.h"

#include <cmath>

#include "kernels/alignment.h"
#include "kernels/jit/run_op.h"
#include "kernels/moe/router_bench.h"
#include "kernels/moe/router_call.h"
#include "kernels/moe/router_kernel.h"
#include "kernels/op_call.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

// 1. Spec: RouterSpec; 2. Builder: build_router
using Spec = moe::RouterSpec;

// 3. Host function
constexpr const char* kOp = "top2_sum_gate";

OutputInfo output(const ArgCheck& check, const char* name, DType dtype) {
  const Dims shape{check["T"], check["K+S"]};
  return row_major_output(name, dtype, shape);
}

Spec spec_of(const ArgCheck& check, const moe::RouterCall& call, const Tensors& tensors) {
  Spec s;
  s.experts = static_cast<int32_t>(check["E"]);
  s.num_topk = static_cast<int32_t>(call.num_topk);
  s.num_shared = static_cast<int32_t>(call.num_shared);
  s.num_groups = static_cast<int32_t>(call.num_groups);
  s.num_topk_groups = static_cast<int32_t>(call.num_topk_groups);
  s.scoring = call.scoring;
  s.has_mask = tensors.contains("mask");
  s.has_fixed = tensors.contains("fix_routing_mask");
  s.has_unmapped = tensors.contains("unmapped_topk_idx");
  s.has_map = tensors.contains("to_physical_map");
  const int32_t align = common_alignment(tensors, {"logits", "bias"});
  s.vector = align == 16 && s.experts % 4 == 0 ? 4 : 1;
  return s;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  moe::check_router(check, inputs, params);
  return {output(check, "topk_idx", DType::i64), output(check, "topk_weights", DType::f32)};
}

/// Of tokens that are not masked: logits are finite and the experts that they keep exist. Experts
/// have replicas, which are among the physical experts.
void check_values(const ArgCheck& check, const Tensors& tensors, int64_t num_physical) {
  const TensorView& logits = tensors.at("logits");
  if (!values_are_checked(logits)) return;
  const auto is_set = [&](const char* name, int64_t token, bool otherwise) {
    return check.has(name) ? integer_at(tensors.at(name), token) != 0 : otherwise;
  };
  const auto* values = static_cast<const float*>(logits.data);
  const int64_t experts = check["E"], topk = check["K"];
  const auto refuse = [&](const std::string& name, const std::string& expected,
                          const std::string& value, const Dims& place) {
    check.require(false, name, out_of_range(name), expected, value + " at " + to_string(place));
  };
  if (check.has("logical_count")) {
    const TensorView &count = tensors.at("logical_count"), &map = tensors.at("to_physical_map");
    require_values(check, "logical_count", count, 1, check["D"]);
    for (int64_t e = 0; e < check["E+S"]; ++e) {
      for (int64_t d = 0; d < integer_at(count, e); ++d) {
        const int64_t id = integer_at(map, e * check["D"] + d);
        if (id < num_physical) continue;
        refuse("to_physical_map", "at most " + std::to_string(num_physical - 1), std::to_string(id),
               {e, d});
      }
    }
  }
  for (int64_t t = 0; t < check["T"]; ++t) {
    if (!is_set("mask", t, true)) continue;
    for (int64_t e = 0; e < experts; ++e) {
      const float value = values[t * experts + e];
      if (std::isfinite(value)) continue;
      refuse("logits", "finite logits of tokens that are not masked", std::to_string(value),
             {t, e});
    }
    if (!is_set("fix_routing_mask", t, false)) continue;
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t id = integer_at(tensors.at("unmapped_topk_idx"), t * topk + k);
      if (id >= 0 && id < experts) continue;
      refuse("unmapped_topk_idx",
             "0 .. " + std::to_string(experts - 1) + " where fix_routing_mask is true",
             std::to_string(id), {t, k});
    }
  }
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const moe::RouterCall call = moe::check_router(check, tensors, params);
  check.output("topk_idx", tensors).dtype(DType::i64).shape("T", "K+S").row_major();
  check.output("topk_weights", tensors).dtype(DType::f32).shape("T", "K+S").row_major();
  check.memory();
  check_values(check, tensors, call.num_physical);
  if (check["T"] == 0) return;
  std::vector<TensorView> arguments;
  for (const char* name : {"logits", "bias", "topk_idx", "topk_weights", "mask", "fix_routing_mask",
                           "unmapped_topk_idx", "to_physical_map", "logical_count"}) {
    if (const auto found = tensors.find(name); found != tensors.end()) {
      arguments.push_back(found->second);
    }
  }
  const jit::Scalar scalars[] = {call.routed_scaling_factor,
                                 call.ep_rank,
                                 call.num_physical,
                                 call.num_physical / call.num_ep_ranks,
                                 call.tp_rank,
                                 call.num_tp_ranks};
  const Spec spec = spec_of(check, call, tensors);
  jit::run_op(kOp, spec, moe::build_router, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  const moe::RouterCall call = moe::check_router(check, tensors, params);
  if (check["T"] == 0) return {};
  return {moe::build_router(spec_of(check, call, tensors))};
}

// 4. Registration: router_bench.cpp has the cases
OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "moe";
  op.purpose = "the experts of each token, their weights and where they live on this rank";
  op.tensors = moe::router_tensors();
  op.params = moe::router_params();
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = moe::router_examples();
  op.bench = moe::router_bench();
  return op;
}

}  // namespace

void top2_sum_gate(const Top2SumGateTensors& t, const Top2SumGateOptions& o, Stream stream) {
  call_op(top2_sum_gate_op(),
          {{"logits", t.logits},
           {"bias", t.bias},
           {"mask", t.mask},
           {"fix_routing_mask", t.fix_routing_mask},
           {"to_physical_map", t.to_physical_map},
           {"logical_count", t.logical_count},
           {"unmapped_topk_idx", t.unmapped_topk_idx},
           {"topk_idx", t.topk_idx},
           {"topk_weights", t.topk_weights}},
          {{"num_topk", o.num_topk},
           {"num_topk_groups", o.num_topk_groups},
           {"num_groups", o.num_groups},
           {"use_shared_as_routed", o.use_shared_as_routed},
           {"num_shared_experts", o.num_shared_experts},
           {"routed_scaling_factor", o.routed_scaling_factor},
           {"ep_rank", o.ep_rank},
           {"num_ep_ranks", o.num_ep_ranks},
           {"tp_rank", o.tp_rank},
           {"num_tp_ranks", o.num_tp_ranks},
           {"scoring_func", o.scoring_func}},
          stream);
}

const OpInfo& top2_sum_gate_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
