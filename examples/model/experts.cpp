// The experts of a layer: kChosen by the scores of a router, or by a table of token ids in early layers, and one for every
// token, whose id stands behind theirs. moe_forward takes their weights in e4m3 and in MXFP4.

#include <tessera/kernels/ops.h>

#include "model.h"

namespace model {

namespace ops = tessera::kernels;

namespace {
constexpr double kClamp = 10;  // of gates and values before they are multiplied
}

void Model::experts(Now& now, size_t layer) {
  const ExpertWeights& w = weights_.layers[layer].experts;
  const bool by_hash = kLayers[layer].by_hash;
  Activations& a = now.a;
  const Tensor& ids = by_hash ? a.table_ids : a.expert_ids;
  ops::MoeGate gate{.x = a.input,
                    .w = w.gate,
                    .num_tokens = now.step.num_tokens,
                    .topk_idx = ids,
                    .topk_weights = a.expert_weights,
                    .num_shared_experts = kShared,
                    .routed_scaling_factor = 1.5};
  if (by_hash) {
    gate.routing = ops::Routing::hash;
    gate.token_ids = now.step.token_ids;
    gate.table = w.table;
    gate.scale = ops::Scale::routed;
  } else {
    gate.bias = w.bias;
    gate.num_topk = kChosen;
    gate.use_shared_as_routed = true;
  }
  ops::moe_gate(with_scratch(gate), stream_);
  ops::MoeForward forward{.x = a.input,
                          .topk_idx = ids,
                          .topk_weights = a.expert_weights,
                          .num_tokens = now.step.num_tokens,
                          .out = a.output,
                          .swiglu_clamp_value = kClamp};
  if (kLayers[layer].in_fp4) {
    forward.w13 = w.fp4_13.packed, forward.w13_shift = w.fp4_13.shift;
    forward.w13_sf = w.fp4_13.scale;
    forward.w2 = w.fp4_2.packed, forward.w2_shift = w.fp4_2.shift, forward.w2_sf = w.fp4_2.scale;
  } else {
    forward.w13 = w.w13, forward.w13_sf = w.w13_sf;
    forward.w2 = w.w2, forward.w2_sf = w.w2_sf;
  }
  ops::moe_forward(with_scratch(forward), stream_);
}

}  // namespace model
