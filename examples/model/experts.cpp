// The experts of a layer: kChosen by the scores of a router, or by a table of token ids in early layers, and one for every
// token, whose id stands behind theirs. In e4m3 all of it is one call, moe_forward; in MXFP4 its pieces.

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
  ops::moe_gate(gate, stream_);
  if (kLayers[layer].in_fp4) {
    fp4_experts(now, w, ids);
  } else {
    fp8_experts(now, w, ids);
  }
}

void Model::fp8_experts(Now& now, const ExpertWeights& w, const Tensor& ids) {
  ops::moe_forward(with_scratch(ops::MoeForward{.x = now.a.input,
                                                .topk_idx = ids,
                                                .topk_weights = now.a.expert_weights,
                                                .w13 = w.w13,
                                                .w13_sf = w.w13_sf,
                                                .w2 = w.w2,
                                                .w2_sf = w.w2_sf,
                                                .num_tokens = now.step.num_tokens,
                                                .out = now.a.output,
                                                .swiglu_clamp_value = kClamp}),
                   stream_);
}

void Model::fp4_experts(Now& now, const ExpertWeights& w, const Tensor& ids) {
  Activations& a = now.a;
  ops::moe_plan({.topk_idx = ids,
                 .topk_weights = a.expert_weights,
                 .num_tokens = now.step.num_tokens,
                 .pos_to_pair = a.pos_to_pair,
                 .pair_to_pos = a.pair_to_pos,
                 .psum = a.psum,
                 .counts = a.counts,
                 .row_weights = a.row_weights,
                 .num_experts = kExperts + kShared,
                 .alignment = 1},  // experts without padding between their rows
                stream_);
  ops::moe_gather_cast({.x = a.input,
                        .pos_to_pair = a.pos_to_pair,
                        .out = a.rows_in,
                        .out_sf = a.rows_in_sf,
                        .num_topk = kChosen + kShared},
                       stream_);
  const auto multiply = [&](const Tensor& rows, const Tensor& scales, const Fp4Weights& weights,
                            const Tensor& out) {
    ops::gemm_mxfp4_grouped({.a = rows,
                             .a_sf = scales,
                             .b = weights.packed,
                             .b_shift = weights.shift,
                             .b_sf = weights.scale,
                             .psum = a.psum,
                             .out = out,
                             .alignment = 1},
                            stream_);
  };
  multiply(a.rows_in, a.rows_in_sf, w.fp4_13, a.inner);
  ops::swiglu_psum_cast({.x = a.inner,
                         .topk_weights = a.row_weights,
                         .psum = a.psum,
                         .out = a.activated,
                         .out_sf = a.activated_sf,
                         .num_per_channels = 128,
                         .swiglu_clamp_value = kClamp,
                         .alignment = 1,
                         .round_sf = false,
                         .sf_layout = ops::SfLayout::row_major},
                        stream_);
  multiply(a.activated, a.activated_sf, w.fp4_2, a.rows_out);
  ops::combine_reduce(
      {.x = a.rows_out, .pos = a.pair_to_pos, .num_tokens = now.step.num_tokens, .out = a.output},
      stream_);
}

}  // namespace model
