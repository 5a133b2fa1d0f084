// Attention of a layer. Each token sees its newest kWindow keys and kEntries compressed ones. In a layer of ratio 4 (CSA) an
// entry stands for 4 tokens and the indexer chooses entries; in one of ratio 128 (HCA) the token sees them all.
//
// The list of a token's keys, for a layer of ratio 4: the scores of the indexer lie in a matrix behind kWindow columns of
// infinity, so one topk_select chooses the window and the best entries, and its table turns columns into slots. For ratio 128
// the host knows the list.

#include <tessera/kernels/ops.h>

#include <cmath>

#include "model.h"

namespace model {
namespace {

namespace ops = tessera::kernels;
using ops::CosSinLayout, ops::Format;

/// The projections of a layer's tokens, as wide as its own.
ts::TensorView projected_of(const Activations& a, int64_t ratio) {
  const ts::TensorView& all = a.projected;
  return reshaped(all, {all.shape[0], projected_columns(ratio).count});
}

}  // namespace

void Model::plan_compressors(Now& now) {
  const Step& s = now.step;
  Activations& a = now.a;
  const auto plan = [&](int64_t ratio, int64_t ring, const Numbers& pages, const Tensor& windows,
                        const Tensor& writes, const Tensor& counts) {
    if (s.shape.decodes) {
      ops::compress_plan_decode({.positions = s.positions,
                                 .state_slot = s.ring,
                                 .page_table = pages,
                                 .plan = windows,
                                 .ratio = ratio,
                                 .ring = ring,
                                 .page_size = kPageSize},
                                stream_);
      return;
    }
    ops::compress_plan({.start = s.start,
                        .row_start = s.row_start,
                        .state_slot = s.ring,
                        .page_table = pages,
                        .plan = windows,
                        .write_plan = writes,
                        .counts = counts,
                        .ratio = ratio,
                        .num_windows = windows.view().shape[0],
                        .num_writes = writes.view().shape[0],
                        .ring = ring,
                        .page_size = kPageSize},
                       stream_);
  };
  plan(4, kRing4, s.pages4, a.plan4, a.writes4, a.counts4);
  plan(128, kRing128, s.pages128, a.plan128, a.writes128, a.counts128);
}

void Model::attention(Now& now, size_t layer) {
  const AttentionWeights& w = weights_.layers[layer].attention;
  const int64_t ratio = kLayers[layer].ratio;
  const Step& s = now.step;
  Activations& a = now.a;
  const ProjectedColumns at = projected_columns(ratio);
  const ts::TensorView projected = projected_of(a, ratio);
  const Tensor& keys = caches_[layer].keys;

  ops::gemm_bf16({.a = a.input, .b = w.in, .out = projected}, stream_);
  ops::q_norm_rope({.q = columns(projected, at.query, {kHeads, kChannels}),
                    .cos_sin = weights_.cos_sin,
                    .positions = s.positions,
                    .out = a.query},
                   stream_);
  ops::kv_norm_rope_store({.x = columns(projected, at.key, {kChannels}),
                           .norm_weight = w.key_norm,
                           .cos_sin = weights_.cos_sin,
                           .positions = s.positions,
                           .loc = s.key_slots,
                           .cache = keys,
                           .format = Format::bf16},
                          stream_);
  compress(now, layer);
  if (ratio == 4) choose_entries(now, layer);
  ops::sparse_mla_fwd({.q = a.query,
                       .kv = keys,
                       .indices = ratio == 4 ? a.keys4.view() : s.keys128.tensor.view(),
                       .attn_sink = w.sink,
                       .out = a.attended,
                       .max_logits = a.max_logits,
                       .lse = a.lse,
                       .sm_scale = 1 / std::sqrt(static_cast<double>(kChannels))},
                      stream_);
  // A value is a key, rotated by its position: back by that of the query, distances are left.
  ops::apply_rotary(
      {.cos_sin = weights_.cos_sin,
       .positions = s.angles,
       .query = {static_cast<uint16_t*>(a.attended.view().data) + kChannels - kRotated,
                 ts::DType::bf16,
                 {now.rows(), kHeads, kRotated},
                 {kHeads * kChannels, kChannels, 1},
                 device_},
       .interleaved = true,
       .conjugate = true,
       .cos_sin_layout = CosSinLayout::pairs},
      stream_);
  ops::gemm_bf16(
      {.a = reshaped(a.attended, {now.rows(), kHeads * kChannels}), .b = w.out, .out = a.output},
      stream_);
}

/// Entries of the windows that end with the step's tokens, to the caches.
void Model::compress(Now& now, size_t layer) {
  const AttentionWeights& w = weights_.layers[layer].attention;
  const Caches& c = caches_[layer];
  const Activations& a = now.a;
  const int64_t ratio = kLayers[layer].ratio;
  const ProjectedColumns at = projected_columns(ratio);
  const Tensor &plan = ratio == 4 ? a.plan4 : a.plan128,
               &writes = ratio == 4 ? a.writes4 : a.writes128;
  const auto store = [&](const CompressorWeights& weights, int64_t column, int64_t channels,
                         const Tensor& state, const Tensor& cache, Format format) {
    const ts::TensorView x =
        columns(projected_of(a, ratio), column, {compressor_columns(ratio, channels)});
    if (now.step.shape.decodes) {
      ops::compress_decode_store(
          with_scratch(ops::CompressDecodeStore{.x = x,
                                                .ape = weights.ape,
                                                .plan = plan,
                                                .norm_weight = weights.norm,
                                                .cos_sin = weights_.cos_sin,
                                                .state = state,
                                                .cache = cache,
                                                .ratio = ratio,
                                                .format = format,
                                                .page_size = kPageSize,
                                                .hadamard = format == Format::index_fp8}),
          stream_);
      return;
    }
    ops::compress_store(with_scratch(ops::CompressStore{.x = x,
                                                        .ape = weights.ape,
                                                        .state = state,
                                                        .plan = plan,
                                                        .norm_weight = weights.norm,
                                                        .cos_sin = weights_.cos_sin,
                                                        .cache = cache,
                                                        .ratio = ratio,
                                                        .format = format,
                                                        .page_size = kPageSize,
                                                        .hadamard = format == Format::index_fp8}),
                        stream_);
    ops::compress_state_write({.x = x, .write_plan = writes, .state = state, .ratio = ratio},
                              stream_);
  };
  store(w.compressor, at.compressor, kChannels, c.state, c.keys, Format::bf16);
  if (ratio != 4) return;
  store(w.index_compressor, at.index_compressor, kIndexChannels, c.index_state, c.index_keys,
        Format::index_fp8);
}

/// The indexer: a list of slots for each row, of its window and of the entries with the best scores.
void Model::choose_entries(Now& now, size_t layer) {
  const Step& s = now.step;
  Activations& a = now.a;
  const int64_t rows = now.rows();
  ops::gemm_bf16({.a = a.input, .b = weights_.layers[layer].attention.index, .out = a.index_query},
                 stream_);
  ops::index_q_store(
      {.q = reshaped(a.index_query, {rows, kIndexHeads, kIndexChannels}),
       .weight = columns(projected_of(a, 4), projected_columns(4).index_weight, {kIndexHeads}),
       .cos_sin = weights_.cos_sin,
       .positions = s.positions,
       .out = a.index_codes,
       .weights = a.index_weights,
       .weight_scale = 1 / std::sqrt(static_cast<double>(kIndexHeads * kIndexChannels))},
      stream_);
  ops::paged_mqa_logits({.q = reshaped(a.index_codes, {rows, 1, kIndexHeads, kIndexChannels}),
                         .cache = caches_[layer].index_keys,
                         .weights = a.index_weights,
                         .lengths = s.num_entries,
                         .page_table = s.index_pages,
                         .logits = columns(a.scores, kWindow, {kEntries4}),
                         .max_len = kEntries4,
                         .clean = false,
                         .page_size = kPageSize},
                        stream_);
  ops::topk_select({.scores = a.scores,
                    .lengths = s.end_column,
                    .page_table = s.key_table,
                    .indices = a.keys4,
                    .topk = kKeys,
                    .page_size = 1},
                   stream_);
}

}  // namespace model
