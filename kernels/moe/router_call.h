#pragma once
// The arguments of a router call, checked.

#include "kernels/arg_check.h"
#include "kernels/moe/expert_score.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kMaxExperts = 4096;  // 128 keys per lane still fit its registers

struct RouterCall {
  Scoring scoring = Scoring::sigmoid;
  int64_t num_topk = 0, num_shared = 0;
  int64_t num_groups = 0, num_topk_groups = 0;  // 0 where all groups win
  int64_t num_physical = 0;                     // experts with their replicas
  int64_t num_ep_ranks = 1, ep_rank = 0, num_tp_ranks = 1, tp_rank = 0;
  float routed_scaling_factor = 1;
};

/// Checks inputs and parameters of top2_sum_gate; binds T, E and S.
RouterCall check_router(ArgCheck& check, const Tensors& tensors, const Params& params);

/// Tensors and parameters as the op tables say them.
std::vector<TensorInfo> router_tensors();
std::vector<ParamInfo> router_params();

}  // namespace tessera::kernels::moe
