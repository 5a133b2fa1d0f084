#include "kernels/moe/router_call.h"

#include <string>

namespace tessera::kernels::moe {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

/// How many shared experts take slots.
int64_t shared_slots(const ArgCheck& check, const Params& params) {
  if (!std::get<bool>(params.at("use_shared_as_routed"))) return 0;
  const int64_t shared = std::get<int64_t>(params.at("num_shared_experts"));
  check.require(shared == 1 || shared == 2, "num_shared_experts",
                "parameter 'num_shared_experts' is out of range",
                "1 or 2 where use_shared_as_routed is true", text(shared));
  return shared;
}

/// Whether that many are allowed.
void check_shared(const ArgCheck& check, int64_t extra, const RouterCall& call) {
  const int64_t shared = call.num_shared;
  if (shared == 0) return;
  check.require(call.num_topk % shared == 0 && check["E"] % (call.num_topk / shared) == 0,
                "num_shared_experts", "'num_shared_experts' does not fit num_topk and the experts",
                "num_topk % num_shared_experts = 0 and E % (num_topk / num_shared_experts) = 0",
                "num_topk = " + text(call.num_topk) + ", E = " + text(check["E"]) +
                    ", num_shared_experts = " + text(shared));
  check.require(shared <= extra, "to_physical_map",
                "shared experts need as many extra columns of 'to_physical_map'",
                "at least " + text(shared + 1) + " columns", text(extra + 1));
  check.require(call.num_topk + shared <= 32, "num_topk",
                "'num_topk' and shared experts are too many for a token",
                "num_topk + num_shared_experts <= 32", text(call.num_topk + shared));
}

void check_groups(const ArgCheck& check, RouterCall& call) {
  const int64_t experts = check["E"], groups = call.num_groups, winners = call.num_topk_groups;
  check.require((groups == 0) == (winners == 0), "num_topk_groups",
                "'num_groups' and 'num_topk_groups' go together", "both 0 or neither",
                "num_groups = " + text(groups) + ", num_topk_groups = " + text(winners));
  if (groups == 0) return;
  check.require(groups >= 1 && groups <= 32 && experts % groups == 0, "num_groups",
                "parameter 'num_groups' is out of range",
                "1..32, a divisor of E = " + text(experts), text(groups));
  check.require(winners >= 1 && winners <= groups, "num_topk_groups",
                "parameter 'num_topk_groups' is out of range", "1..num_groups = " + text(groups),
                text(winners));
  const int64_t members = experts / groups;
  check.require(members >= 2 && members <= 32, "num_groups",
                "'num_groups' makes groups of the wrong size", "2 to 32 experts in each group",
                text(members));
  check.require(winners * members >= call.num_topk, "num_topk_groups",
                "'num_topk_groups' leaves too few experts",
                "at least num_topk = " + text(call.num_topk) + " experts in them",
                text(winners * members));
}

void check_ranks(const ArgCheck& check, const RouterCall& call) {
  check.require(call.num_ep_ranks >= 1 && call.num_physical % call.num_ep_ranks == 0,
                "num_ep_ranks", "parameter 'num_ep_ranks' is out of range",
                "a divisor of the " + text(call.num_physical) + " experts and extra experts",
                text(call.num_ep_ranks));
  check.require(call.ep_rank >= 0 && call.ep_rank < call.num_ep_ranks, "ep_rank",
                "parameter 'ep_rank' is out of range",
                "0 .. num_ep_ranks - 1 = " + text(call.num_ep_ranks - 1), text(call.ep_rank));
  const int64_t most = ((int64_t{1} << 31) - 1) / call.num_physical;  // products stay in 32 bits
  check.param_in_range("num_tp_ranks", call.num_tp_ranks, 1, most);
  check.require(call.tp_rank >= 0 && call.tp_rank < call.num_tp_ranks, "tp_rank",
                "parameter 'tp_rank' is out of range",
                "0 .. num_tp_ranks - 1 = " + text(call.num_tp_ranks - 1), text(call.tp_rank));
}

}  // namespace

RouterCall check_router(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const auto integer = [&](const char* name) { return std::get<int64_t>(params.at(name)); };
  RouterCall call;
  call.scoring = scoring_of(params);
  call.num_topk = integer("num_topk");
  call.num_groups = integer("num_groups");
  call.num_topk_groups = integer("num_topk_groups");
  call.num_ep_ranks = integer("num_ep_ranks");
  call.ep_rank = integer("ep_rank");
  call.num_tp_ranks = integer("num_tp_ranks");
  call.tp_rank = integer("tp_rank");
  call.routed_scaling_factor =
      static_cast<float>(std::get<double>(params.at("routed_scaling_factor")));

  check.tensor("logits", tensors).dtype(DType::f32).shape("T", "E").row_major();
  check.tensor("bias", tensors).dtype(DType::f32).shape("E").row_major();
  check.optional("mask", tensors).dtype(DType::boolean).shape("T").row_major();
  check.optional("fix_routing_mask", tensors).dtype(DType::boolean).shape("T").row_major();
  const int64_t experts = check["E"];
  check.require(call.num_topk >= 1 && call.num_topk <= std::min<int64_t>(32, experts), "num_topk",
                "parameter 'num_topk' is out of range",
                "1 .. " + text(std::min<int64_t>(32, experts)) + " (E = " + text(experts) + ")",
                text(call.num_topk));
  check.require(experts <= kMaxExperts, "logits", "too many experts",
                "at most " + text(kMaxExperts), text(experts), ErrorKind::unsupported);

  const bool has_map = tensors.contains("to_physical_map");
  check.require(has_map == tensors.contains("logical_count"),
                has_map ? "logical_count" : "to_physical_map",
                "'to_physical_map' and 'logical_count' go together", "both or none",
                has_map ? "only to_physical_map" : "only logical_count");
  call.num_shared = shared_slots(check, params);
  check.bind("E+S", experts + call.num_shared, "experts and shared experts");
  check.optional("to_physical_map", tensors).dtype(DType::i32).shape("E+S", "D").row_major();
  check.optional("logical_count", tensors).dtype(DType::i32).shape("E+S").row_major();
  const int64_t extra = has_map ? check["D"] - 1 : 0;
  check.require(extra >= 0, "to_physical_map", "'to_physical_map' has no columns", "at least 1",
                "0");
  call.num_physical = experts + extra;

  check_groups(check, call);
  check_shared(check, extra, call);
  check_ranks(check, call);
  if (call.num_groups == call.num_topk_groups) call.num_groups = call.num_topk_groups = 0;
  check.bind("K", call.num_topk, "num_topk");
  check.bind("K+S", call.num_topk + call.num_shared, "num_topk and shared experts");
  check.require(!tensors.contains("fix_routing_mask") || tensors.contains("unmapped_topk_idx"),
                "unmapped_topk_idx", "'fix_routing_mask' needs 'unmapped_topk_idx'",
                "unmapped_topk_idx, whose experts it keeps", "none");
  check.optional_output("unmapped_topk_idx", tensors).dtype(DType::i64).shape("T", "K").rows();
  return call;
}

std::vector<TensorInfo> router_tensors() {
  return {input("logits", {"f32"}, {"T", "E"}),
          input("bias", {"f32"}, {"E"}),
          optional(input("mask", {"bool"}, {"T"})),
          optional(input("fix_routing_mask", {"bool"}, {"T"})),
          optional(input("to_physical_map", {"i32"}, {"E+S", "D"})),
          optional(input("logical_count", {"i32"}, {"E+S"})),
          output("topk_idx", {"i64"}, {"T", "K+S"}),
          output("topk_weights", {"f32"}, {"T", "K+S"}),
          optional(inout("unmapped_topk_idx", {"i64"}, {"T", "K"}, "rows"))};
}

std::vector<ParamInfo> router_params() {
  return {count("num_topk", "1..32"),
          integer("num_topk_groups", {}, 0),
          integer("num_groups", {}, 0),
          flag("use_shared_as_routed", false),
          integer("num_shared_experts", {}, 0),
          number("routed_scaling_factor", 1.0),
          integer("ep_rank", {}, 0),
          integer("num_ep_ranks", {}, 1),
          integer("tp_rank", {}, 0),
          integer("num_tp_ranks", {}, 1),
          scoring_param()};
}

}  // namespace tessera::kernels::moe
