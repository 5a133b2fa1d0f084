#pragma once
// Builds the router kernel from its Spec.

#include "dsl/ir/tile.h"
#include "kernels/moe/parts/expert_score.h"

namespace tessera::kernels::moe {

struct RouterSpec {
  int32_t experts, num_topk, num_shared, num_groups, num_topk_groups;
  Scoring scoring;
  bool has_mask, has_fixed, has_unmapped, has_map;
  uint8_t vector;  // logits per load
  uint8_t unused[2] = {};
};

/// Tensors in order: logits, bias, topk_idx, topk_weights, then those of mask, fix_routing_mask,
/// unmapped_topk_idx, to_physical_map and logical_count that the call has. Scalars:
/// routed_scaling_factor, ep_rank, num_physical, experts_per_rank, tp_rank, num_tp_ranks.
ir::Kernel build_router(const RouterSpec& s);

}  // namespace tessera::kernels::moe
