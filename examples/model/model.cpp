#include "model.h"

#include <tessera/kernels/jit/prepare.h>
#include <tessera/kernels/ops.h>

#include <limits>

namespace model {
namespace {

namespace ops = tessera::kernels;
using ts::DType;

Tensor constant(ts::Device device, ts::Dims shape, const std::function<float(int64_t)>& value) {
  Tensor result(device, DType::f32, shape);
  std::vector<float> values;
  for (int64_t i = 0; i < result.view().size(); ++i) values.push_back(value(i));
  result.upload(values);
  return result;
}

Caches make_caches(ts::Device device, int64_t ratio) {
  const int64_t ring = ratio == 4 ? kRing4 : kRing128;
  Caches c;
  c.keys = Tensor(device, DType::bf16, {kPages * kPageSize, kChannels});
  c.state = Tensor(device, DType::bf16, {kRings * ring, compressor_columns(ratio, kChannels)});
  if (ratio != 4) return c;
  c.index_state =
      Tensor(device, DType::bf16, {kRings * ring, compressor_columns(4, kIndexChannels)});
  c.index_keys = Tensor(device, DType::u8, {kPages, kPageSize * (kIndexChannels + 4)});
  return c;
}

}  // namespace

Activations::Activations(ts::Device device, Shape shape) {
  const int64_t rows = shape.rows, n = kStreams;
  const auto tensor = [&](DType dtype, ts::Dims dims) { return Tensor(device, dtype, dims); };
  for (int i : {0, 1}) {
    streams[i] = tensor(DType::bf16, {rows, n, kHidden});
    post[i] = tensor(DType::f32, {rows, n});
    comb[i] = tensor(DType::f32, {rows, n, n});
  }
  input = tensor(DType::bf16, {rows, kHidden});
  output = tensor(DType::bf16, {rows, kHidden});
  no_streams = tensor(DType::bf16, {rows, n, kHidden});
  no_post = tensor(DType::f32, {rows, n});
  no_comb = tensor(DType::f32, {rows, n, n});
  all_post = constant(device, {rows, n}, [](int64_t) { return 1.0f; });
  same_comb = constant(device, {rows, n, n}, [](int64_t i) {
    return i % (kStreams * kStreams) % (kStreams + 1) == 0 ? 1.0f : 0.0f;
  });

  entries = tensor(DType::bf16, {rows, kEngram});
  key_value = tensor(DType::bf16, {rows, (n + 1) * kHidden});

  if (shape.decodes) {
    plan4 = tensor(DType::i32, {rows, 8});
    plan128 = tensor(DType::i32, {rows, 8});
  } else {
    plan4 = tensor(DType::i32, {rows / 4 + shape.requests, 8});
    plan128 = tensor(DType::i32, {rows / 128 + shape.requests, 8});
    writes4 = tensor(DType::i32, {rows, 2});
    writes128 = tensor(DType::i32, {rows, 2});
    counts4 = tensor(DType::i32, {2});
    counts128 = tensor(DType::i32, {2});
  }
  projected = tensor(DType::bf16, {rows, projected_columns(4).count});
  query = tensor(DType::bf16, {rows, kHeads, kChannels});
  index_query = tensor(DType::bf16, {rows, kIndexHeads * kIndexChannels});
  index_codes = tensor(DType::e4m3, {rows, kIndexHeads, kIndexChannels});
  index_weights = tensor(DType::f32, {rows, kIndexHeads});
  // The window is always chosen.
  scores = constant(device, {rows, kWindow + kEntries4}, [](int64_t i) {
    return i % (kWindow + kEntries4) < kWindow ? std::numeric_limits<float>::infinity() : 0.0f;
  });
  keys4 = tensor(DType::i32, {rows, kKeys});
  attended = tensor(DType::bf16, {rows, kHeads, kChannels});
  max_logits = tensor(DType::f32, {rows, kHeads});
  lse = tensor(DType::f32, {rows, kHeads});

  expert_ids = tensor(DType::i64, {rows, kChosen + kShared});
  table_ids = tensor(DType::i32, {rows, kChosen + kShared});
  expert_weights = tensor(DType::f32, {rows, kChosen + kShared});

  row = tensor(DType::bf16, {rows, kHidden});
  normalised = tensor(DType::bf16, {rows, kHidden});
  logits = tensor(DType::f32, {rows, kVocabulary});
}

Model::Model(ts::Device device, uint64_t seed, ops::Stream stream)
    : device_(device), stream_(stream), weights_(random_weights(device, seed)) {
  for (const LayerKind& kind : kLayers) caches_.push_back(make_caches(device, kind.ratio));
}

Model::OfShape& Model::of(Shape shape) {
  std::unique_ptr<OfShape>& made = shapes_[shape];
  if (!made) made.reset(new OfShape{Step(device_, shape), Activations(device_, shape)});
  return *made;
}

Step& Model::step(Shape shape) {
  return of(shape).step;
}

const Activations& Model::activations(Shape shape) {
  return of(shape).activations;
}

std::vector<float> Model::run(const Step& step) {
  run(step, [](const std::string&, const std::function<void()>& part) { part(); });
  return activations(step.shape).logits.download<float>();
}

void Model::prepare(Shape shape) {
  run(step(shape),
      [](const std::string&, const std::function<void()>& part) { ops::jit::prepare(part); });
}

std::vector<PartLaunches> Model::launches(const Step& step) {
  std::vector<PartLaunches> all;
  run(step, [&](const std::string& name, const std::function<void()>& part) {
    part();  // on a CPU the list of the next part's launches reads what this one writes
    PartLaunches& launched = all.emplace_back();
    launched.name = name;
    for (const auto& kernel : ops::jit::kernels_needed(part)) launched.ops.push_back(kernel.op);
  });
  return all;
}

void Model::run(const Step& step, const RunPart& run_part) {
  Now now{step, of(step.shape).activations, {}, {}, {}, {}};
  run_part("plans", [&] { plan_compressors(now); });
  run_part("embedding", [&] { begin(now); });
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const std::string name = "layer " + std::to_string(i) + ", ";
    if (kLayers[i].has_engram) run_part(name + "Engram", [&] { engram(now, layer.engram); });
    run_part(name + "boundary", [&] { boundary(now, layer.before_attention); });
    run_part(name + "attention", [&] { attention(now, i); });
    run_part(name + "boundary", [&] { boundary(now, layer.before_experts); });
    run_part(name + "experts", [&] { experts(now, i); });
  }
  run_part("head", [&] { head(now); });
}

void Model::begin(Now& now) {
  Activations& a = now.a;
  ops::kv_load({.cache = weights_.embedding,  // rows, by number
                .loc = now.step.token_ids,
                .out = a.output,
                .format = ops::Format::bf16},
               stream_);
  // The first boundary adds the embedding to every stream of nothing.
  now.output = a.output, now.streams = a.no_streams, now.post = a.all_post, now.comb = a.no_comb;
}

/// Adds what the last tokens recall to the streams.
void Model::engram(Now& now, const EngramWeights& w) {
  Activations& a = now.a;
  const ts::TensorView before = a.streams[now.spare], after = a.streams[1 - now.spare];
  ops::post_fwd({.x = now.output,
                 .residual = now.streams,
                 .post_mix = now.post,
                 .comb_mix = now.comb,
                 .out = before},
                stream_);
  ops::engram_embed({.ngram_token_ids = now.step.ngram_ids,
                     .multipliers = w.multipliers,
                     .vocab_sizes = w.sizes,
                     .offsets = w.offsets,
                     .table = w.table,
                     .out = a.entries},
                    stream_);
  ops::gemm_bf16({.a = a.entries, .b = w.key_value, .out = a.key_value}, stream_);
  ops::engram_gate_fwd({.hidden_states = before,
                        .k = columns(a.key_value, 0, {kStreams, kHidden}),
                        .v = columns(a.key_value, kStreams * kHidden, {kHidden}),
                        .weight_fused = w.norm,
                        .out = after,
                        .eps = 1e-6,
                        .save_for_backward = false},
                       stream_);
  // The boundary behind it changes no stream.
  now.streams = after, now.post = a.no_post, now.comb = a.same_comb;
}

void Model::boundary(Now& now, const MixWeights& w) {
  Activations& a = now.a;
  const int to = now.spare;
  ops::mhc_boundary(with_scratch(ops::MhcBoundary{.x = now.output,
                                                  .residual = now.streams,
                                                  .post_mix = now.post,
                                                  .comb_mix = now.comb,
                                                  .fn = w.fn,
                                                  .scale = w.scale,
                                                  .base = w.base,
                                                  .weight = w.norm,
                                                  .next_residual = a.streams[to],
                                                  .next_post_mix = a.post[to],
                                                  .next_comb_mix = a.comb[to],
                                                  .out = a.input,
                                                  .post_mult_value = 2,
                                                  .rms_eps = 1e-6}),
                    stream_);
  now.output = a.output;
  now.streams = a.streams[to], now.post = a.post[to], now.comb = a.comb[to];
  now.spare = 1 - to;
}

void Model::head(Now& now) {
  Activations& a = now.a;
  const ts::TensorView streams = a.streams[now.spare];
  ops::post_fwd({.x = now.output,
                 .residual = now.streams,
                 .post_mix = now.post,
                 .comb_mix = now.comb,
                 .out = streams},
                stream_);
  ops::mhc_head_fwd(with_scratch(ops::MhcHeadFwd{.residual = streams,
                                                 .fn = weights_.head.fn,
                                                 .scale = weights_.head.scale,
                                                 .base = weights_.head.base,
                                                 .out = a.row,
                                                 .save_for_backward = false}),
                    stream_);
  ops::norm_fwd({.x = a.row, .weight = weights_.head.norm, .out = a.normalised, .norm_eps = 1e-6},
                stream_);
  ops::gemm_bf16({.a = a.normalised, .b = weights_.out, .out = a.logits, .out_dtype = DType::f32},
                 stream_);
}

void* Model::scratch(int64_t bytes) {
  if (scratch_.empty() || scratch_.back().view().size() < bytes) {
    scratch_.emplace_back(device_, DType::u8, ts::Dims{bytes});
  }
  return scratch_.back().view().data;
}

}  // namespace model
