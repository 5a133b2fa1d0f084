// top2_sum_gate: the router of a mixture of experts.
//
// Dtypes   f32, ids i64, maps i32, masks bool
// Method   one warp per token: lane l holds experts 128 i + 4 l + j. All lanes share the ranking of
//          the groups. Each of num_topk rounds takes the best key of the warp by two warp
//          reductions over runs of four keys, which every lane has sorted. Slot s then belongs to
//          lane s, which reloads the logit of its expert, so that no scores stay in registers. Few
//          bytes: with few tokens the bound is the latency of one load and of the rounds, with
//          thousands the instructions.
// Maths    weight = score / (1e-20 + scores in rank order) * scale; see expert_score.h
// Tuned    H200: 4 warps per block, so that even 128 tokens spread over 32 SMs.

#include "kernels/moe/parts/router_kernel.h"
#include "kernels/moe/parts/router_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

/// Number of slots for shared experts.
int64_t shared_slots(const Call& c) {
  return c.flag("use_shared_as_routed") ? c["num_shared_experts"] : 0;
}

/// Number of experts with their replicas.
int64_t num_physical(const Call& c) {
  return c["E"] + (c.has("to_physical_map") ? c["D"] - 1 : 0);
}

void launches(const Call& c, Launches& go) {
  const bool all_groups = c["num_groups"] == c["num_topk_groups"];
  moe::RouterSpec s;
  s.experts = c.i32("E");
  s.num_topk = c.i32("K");
  s.num_shared = c.i32("S");
  s.num_groups = all_groups ? 0 : c.i32("num_groups");
  s.num_topk_groups = all_groups ? 0 : c.i32("num_topk_groups");
  s.scoring = moe::scoring_of(c.params());
  s.has_mask = c.has("mask");
  s.has_fixed = c.has("fix_routing_mask");
  s.has_unmapped = c.has("unmapped_topk_idx");
  s.has_map = c.has("to_physical_map");
  s.vector = c.align({"logits", "bias"}) == 16 && s.experts % 4 == 0 ? 4 : 1;
  go.add(moe::build_router, s,
         {.scalars = {{"num_physical", c["physical"]},
                      {"experts_per_rank", c["physical"] / c["num_ep_ranks"]}}});
}

}  // namespace

const Op top2_sum_gate_op{
    .name = "top2_sum_gate",
    .family = "moe",
    .purpose = "the experts of each token, their weights and where they live on this rank",
    .signature = R"(
      logits             f32 [T, E]
      bias               f32 [E]
      mask?              bool [T]         # false: a padding row, of which nothing is looked at
      fix_routing_mask?  bool [T]
      to_physical_map?   i32 [E+S, D]     iff logical_count
      logical_count?     i32 [E+S]        iff to_physical_map
      -> topk_idx        i64 [T, K+S]
      -> topk_weights    f32 [T, K+S]
      -> inout unmapped_topk_idx?  i64 [T, K] rows
      param  num_topk int 1..32
      param  num_topk_groups int = 0
      param  num_groups int = 0
      param  use_shared_as_routed bool = false
      param  num_shared_experts int = 0
      param  routed_scaling_factor float = 1
      param  ep_rank int = 0
      param  num_ep_ranks int = 1
      param  tp_rank int = 0
      param  num_tp_ranks int = 1
      param  scoring_func {sigmoid, sqrtsoftplus, softmax}
      let    K = num_topk
      let    S = shared_slots()
      let    members = E / num_groups
      let    physical = num_physical()
      need   num_topk <= E
      limit  E <= 4096 on logits "too many experts"   # 128 keys per lane still fit its registers
      need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
      need   num_shared_experts in {1, 2} if use_shared_as_routed
      need   (num_groups = 0) = (num_topk_groups = 0) on num_topk_groups
      |      "'num_groups' and 'num_topk_groups' go together"
      need   1 <= num_groups <= 32 and E % num_groups = 0 if num_groups != 0 on num_groups
      need   1 <= num_topk_groups <= num_groups if num_groups != 0 on num_topk_groups
      need   2 <= members <= 32 if num_groups != 0 on num_groups
      |      "'num_groups' makes groups of the wrong size"
      need   num_topk_groups * members >= num_topk if num_groups != 0
      |      "'num_topk_groups' leaves too few experts"
      need   K % S = 0 and E % (K / S) = 0 if use_shared_as_routed on num_shared_experts
      |      "'num_shared_experts' does not fit num_topk and the experts"
      need   S <= physical - E if use_shared_as_routed on to_physical_map
      |      "shared experts need as many extra columns of 'to_physical_map'"
      need   K + S <= 32 on num_topk "'num_topk' and shared experts are too many for a token"
      need   num_ep_ranks >= 1 and physical % num_ep_ranks = 0
      need   0 <= ep_rank < num_ep_ranks on ep_rank
      need   1 <= num_tp_ranks <= 2147483647 / physical on num_tp_ranks # products stay in 32 bits
      need   0 <= tp_rank < num_tp_ranks on tp_rank
      need   unmapped_topk_idx if fix_routing_mask
      |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
    )",
    .launches = launches,
    .check_values = moe::require_routable,
    .functions = {{"shared_slots", shared_slots}, {"num_physical", num_physical}},
    .examples = R"(
      T=65 E=256 num_topk=8 num_groups=8 num_topk_groups=4 scoring_func=sigmoid routed_scaling_factor=2.5
      T=5 E=72 num_topk=6 scoring_func=sqrtsoftplus; T=7 E=30 num_topk=5 scoring_func=softmax
      T=3 E=54 num_topk=4 num_groups=6 num_topk_groups=2 scoring_func=softmax
      T=36 E=72 num_topk=6 num_shared_experts=1 scoring_func=sigmoid use_shared_as_routed=true to_physical_map=given logical_count=given routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 mask=given unmapped_topk_idx=given
      T=36 E=256 num_topk=8 num_groups=8 num_topk_groups=8 num_shared_experts=2 scoring_func=softmax use_shared_as_routed=true to_physical_map=given logical_count=given routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 mask=given unmapped_topk_idx=given)",
    .bench = R"(
      T=36 E=72 num_topk=6 num_shared_experts=1 scoring_func=sigmoid routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 unmapped_topk_idx=given
      T=36 E=32 num_topk=6 num_shared_experts=2 scoring_func=softmax routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 unmapped_topk_idx=given
      T=36 E=36 num_topk=6 num_shared_experts=2 scoring_func=sqrtsoftplus routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 unmapped_topk_idx=given
      T=36 E=128 num_topk=6 num_shared_experts=2 scoring_func=sqrtsoftplus routed_scaling_factor=1.5 num_ep_ranks=4 tp_rank=1 num_tp_ranks=2 unmapped_topk_idx=given
      T=1 E=256 num_topk=8 num_groups=8 num_topk_groups=4 scoring_func=sigmoid routed_scaling_factor=2.5
      T=1 E=256 num_topk=6 scoring_func=sqrtsoftplus routed_scaling_factor=2.5
      T=128 E=256 num_topk=8 num_groups=8 num_topk_groups=4 scoring_func=sigmoid routed_scaling_factor=2.5
      T=128 E=256 num_topk=6 scoring_func=sqrtsoftplus routed_scaling_factor=2.5
      T=4096 E=256 num_topk=8 num_groups=8 num_topk_groups=4 scoring_func=sigmoid routed_scaling_factor=2.5
      T=4096 E=256 num_topk=6 scoring_func=sqrtsoftplus routed_scaling_factor=2.5
      T=4096 E=256 num_topk=8 scoring_func=softmax routed_scaling_factor=2.5)",
    // The last four tokens are masked; every expert has one replica, itself.
    .case_words = {{"K", [](const Case& c) { return c["num_topk"]; }},
                   {"S",
                    [](const Case& c) {
                      return c.find("use_shared_as_routed") == ParamValue(true)
                                 ? c["num_shared_experts"]
                                 : int64_t{0};
                    }},
                   {"D", [](const Case&) { return int64_t{33}; }}},
    .values = {{"mask", [](const Case& c, int64_t t) { return t < c["T"] - 4 ? int64_t{1} : 0; }},
               {"to_physical_map", [](const Case& c, int64_t i) { return i / c["D"]; }},
               {"logical_count", [](const Case&, int64_t) { return int64_t{1}; }}},
    .bytes = [](const Case& c) { return 4 * (c["T"] + 1) * c["E"]; }};

}  // namespace tessera::kernels
