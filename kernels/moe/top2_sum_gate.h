#pragma once
// The router of a mixture of experts: scores, optional groups, the best experts, their weights, and
// where they live on this rank.

#include <string>

#include "kernels/op.h"

namespace tessera::kernels {

struct Top2SumGateOptions {
  int64_t num_topk = 0;         // 1 .. 32
  int64_t num_topk_groups = 0;  // both 0: no groups
  int64_t num_groups = 0;
  bool use_shared_as_routed = false;
  int64_t num_shared_experts = 0;  // 1 or 2 where they are used as routed
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0, num_ep_ranks = 1;
  int64_t tp_rank = 0, num_tp_ranks = 1;
  std::string scoring_func;  // sigmoid, sqrtsoftplus, softmax
};

/// The tensors of a call; those that may be absent are absent by default. S counts the shared
/// experts that are used as routed.
struct Top2SumGateTensors {
  TensorView logits;             // f32  [tokens, experts]
  TensorView bias;               // f32  [experts]
  TensorView mask;               // bool [tokens], absent = all true; false: the token goes nowhere
  TensorView fix_routing_mask;   // bool [tokens]; true: take the experts of unmapped_topk_idx
  TensorView to_physical_map;    // i32  [experts + S, D]: replicas of each expert, with
  TensorView logical_count;      // i32  [experts + S]: how many of them there are, 1 .. D
  TensorView unmapped_topk_idx;  // i64  [tokens, num_topk], last stride 1: ids before the map
  TensorView topk_idx;           // i64  [tokens, num_topk + S], written
  TensorView topk_weights;       // f32  [tokens, num_topk + S], written
};

/// Picks the num_topk best experts of every token by score + bias (softmax: by logit + bias), among
/// the num_topk_groups groups whose two best sum highest, and lists them, best first, with their
/// scores divided by their sum and multiplied by routed_scaling_factor; shared experts follow with
/// weight 1. Ids then become those of a replica and of this rank, -1 where the expert lives
/// elsewhere; weights are kept.
///
/// A token that is masked, or has a logit that is not finite, gets ids -1 and weights +0. A fixed
/// id out of range gets id -1 and weight +0, the others are normalised without it. A replica count
/// out of range gives id -1.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, one of a pair of tensors
///          is missing, or a parameter is out of range; on CPU tensors also for what the last
///          paragraph says of logits, fixed ids and replica counts;
///          kind unsupported beyond 4096 experts.
/// Example: top2_sum_gate({.logits = logits, .bias = bias, .topk_idx = ids, .topk_weights = w},
///                        {.num_topk = 8, .num_topk_groups = 4, .num_groups = 8,
///                         .scoring_func = "sigmoid"}, stream);
void top2_sum_gate(const Top2SumGateTensors& t, const Top2SumGateOptions& o, Stream stream);

const OpInfo& top2_sum_gate_op();

}  // namespace tessera::kernels
