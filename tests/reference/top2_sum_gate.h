#pragma once
// The router by definition: sorts instead of rounds, f32 where the specification says so.

#include <string>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct GateOptions {
  int64_t num_topk = 0, num_topk_groups = 0, num_groups = 0;
  int64_t num_shared = 0;  // shared experts that are used as routed
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0, num_ep_ranks = 1, tp_rank = 0, num_tp_ranks = 1;
  std::string scoring_func;
};

/// Inputs and outputs under the names of the op; unmapped_topk_idx stands in the result where it is
/// given.
test::HostTensors top2_sum_gate(const test::HostTensors& inputs, const GateOptions& options);

}  // namespace tessera::reference
