// moe_topk_gate_fwd: the router of a mixture of experts by the root of softplus, without groups.
//
// Shapes   logits, scores [tokens, experts], topk_idx, topk_weights [tokens, num_topk + num_shared],
//          to_physical_map [experts + num_shared, replicas]
// Dtypes   f32, ids i64, maps i32, masks bool
// Method   one warp per token, ranked as in top2_sum_gate. Slot s belongs to lane s, which reloads the
//          logit of its expert. Few bytes: with few tokens the bound is the latency of one load and of
//          the rounds, with thousands the instructions.
// Maths    u = sqrt(softplus(logit)); the experts of the largest u + bias, equal ones by smaller id;
//          weight = u / D * scale, D = 1e-20 + the sum of u in pairs at distance 16, 8, 4, 2, 1

#include "kernels/moe/parts/router_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/gate_route.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using serving::GateSpec;
using serving::GateTensors;

constexpr int kWarps = 4;  // tokens per block

ir::Kernel build(const GateSpec& s) {
  using namespace dsl;
  Builder k("moe_topk_gate_fwd");
  auto tokens = k.dim("tokens");
  auto logits =
      k.input("logits", DType::f32, {tokens, s.experts}, {.align = int64_t{s.vector} * 4});
  const GateTensors t = serving::declare_gate(k, s, tokens);
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});
  k.let_next_kernel_start();
  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.wait_for_previous_kernel();
  k.if_(token < tokens, [&] {
    serving::route_token(
        k, s, t,
        {[&](const Value& expert) { return logits(token, expert); }, out_of_range("logits")}, token,
        lane);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, serving::gate_spec(c, c.align({"logits"})));
}

}  // namespace

const Op moe_topk_gate_fwd_op{
    .name = "moe_topk_gate_fwd",
    .family = "serving",
    .purpose = "the experts of each token by the root of softplus, and their weights",
    .signature = R"(
      logits             f32 [T, E]
      bias?, image_bias? f32 [E]
      image_token_mask?  bool [T]         iff image_bias  # true: ranked by image_bias
      mask?              bool [T]         # false: a padding row, of which nothing is looked at
      fix_routing_mask?  bool [T]         # true: keeps its unmapped_topk_idx
      to_physical_map?   i32 [E+S, D]     iff logical_count
      logical_count?     i32 [E+S]        iff to_physical_map
      -> topk_idx        i64 [T, K+S]
      -> topk_weights    f32 [T, K+S]
      -> scores?         f32 [T, E]       iff save_scores
      -> inout unmapped_topk_idx?  i64 [T, K] rows
      param  num_topk int 1..32
      param  use_shared_as_routed bool = false
      param  num_shared_experts int = 0
      param  routed_scaling_factor float = 1
      param  ep_rank int = 0
      param  save_scores bool = false
      let    K = num_topk
      let    S = shared_slots()
      let    physical = num_physical()
      need   num_topk <= E
      limit  E <= 4096 on logits "too many experts"   # 128 keys per lane still fit its registers
      need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
      need   num_shared_experts >= 0
      need   K + S <= 32 on num_topk "'num_topk' and shared experts are too many for a token"
      need   0 <= ep_rank <= 2147483647
      need   unmapped_topk_idx if fix_routing_mask
      |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
    )",
    .launches = launches,
    .check_values = moe::require_routable,
    .functions = {{"shared_slots", serving::shared_slots},
                  {"num_physical", [](const Call&) { return serving::kAnyPhysical; }}},
    .examples = R"(
      T=65 E=256 num_topk=8 bias=given routed_scaling_factor=2.5; T=5 E=72 num_topk=6 save_scores=true
      T=7 E=30 num_topk=5 bias=given image_bias=given save_scores=true
      T=36 E=384 num_topk=6 num_shared_experts=1 use_shared_as_routed=true to_physical_map=given logical_count=given mask=given unmapped_topk_idx=given)",
    .bench = R"(
      T=1 E=256 num_topk=6 bias=given; T=512 E=256 num_topk=6 bias=given; T=8001 E=256 num_topk=6 bias=given
      T=8192 E=256 num_topk=6 bias=given; T=8192 E=256 num_topk=6 bias=given save_scores=true
      T=8192 E=384 num_topk=6 bias=given; T=8192 E=256 num_topk=8 bias=given)",
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
               {"image_token_mask", [](const Case&, int64_t t) { return t % 2; }},
               {"to_physical_map", [](const Case& c, int64_t i) { return i / c["D"]; }},
               {"logical_count", [](const Case&, int64_t) { return int64_t{1}; }}},
    .bytes = [](const Case& c) {
      const int64_t rows = c.find("save_scores") == ParamValue(true) ? 2 * c["T"] : c["T"];
      return 4 * (rows + 1) * c["E"] + 12 * c["T"] * c["K"];
    }};

}  // namespace tessera::kernels
