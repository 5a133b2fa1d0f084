#pragma once
// The router by the root of softplus, its gradients and the sums of its scores, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct TopkGateOptions {
  int64_t num_topk = 0, num_shared = 0;  // shared experts that are used as routed
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0;
  bool save_scores = false;
};

/// u = sqrt(softplus(logit)). The K largest u + bias, by image_bias where image_token_mask is true, have
/// the weights u / (1e-20 + their butterfly sum) * scale. Inputs and outputs under the names of the op.
test::HostTensors moe_topk_gate_fwd(const test::HostTensors& inputs,
                                    const TopkGateOptions& options);

/// Gradients of the logits, from the scores of the forward pass and the chosen experts.
test::HostTensors moe_topk_gate_bwd(const test::HostTensors& inputs, double routed_scaling_factor);

/// out [num_seqs, E]: u over the sum of its row, added up over the tokens of a sequence that mask counts,
/// in runs of 64.
test::HostTensors gate_scores_sum(const test::HostTensors& inputs, int64_t num_seqs);

}  // namespace tessera::reference
