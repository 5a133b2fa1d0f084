#include "weights.h"

#include <tessera/kernels/ops.h>

#include <cmath>

#include "memory.h"
#include "random.h"

namespace model {
namespace {

namespace ops = tessera::kernels;
using ts::DType;

MixWeights mix(Random& random, int64_t rows, int64_t scales) {
  const int64_t columns = kStreams * kHidden;
  return {random.tensor(DType::f32, {rows, columns}, 1 / std::sqrt(static_cast<double>(columns))),
          random.tensor(DType::f32, {scales}, 0.1, 1), random.tensor(DType::f32, {rows}, 0.5),
          random.norm(kHidden)};
}

CompressorWeights compressor(Random& random, int64_t ratio, int64_t channels) {
  return {random.tensor(DType::f32, {ratio == 4 ? 8 : ratio, channels}, 0.5),
          random.norm(channels)};
}

AttentionWeights attention(Random& random, int64_t ratio) {
  AttentionWeights w;
  w.in = random.matrix(projected_columns(ratio).count, kHidden);
  w.key_norm = random.norm(kChannels);
  w.sink = random.tensor(DType::f32, {kHeads}, 1);
  w.out = random.matrix(kHidden, kHeads * kChannels);
  w.compressor = compressor(random, ratio, kChannels);
  if (ratio != 4) return w;
  w.index = random.matrix(kIndexHeads * kIndexChannels, kHidden);
  w.index_compressor = compressor(random, ratio, kIndexChannels);
  return w;
}

/// The matrices of all experts in e4m3.
void quantise(const Tensor& matrices, Tensor& out, Tensor& scales) {
  const ts::TensorView& m = matrices.view();
  const int64_t experts = m.shape[0], rows = m.shape[1], width = m.shape[2];
  out = Tensor(m.device, DType::e4m3, m.shape);
  scales = Tensor(m.device, DType::f32, {experts, rows / 128, width / 128});
  ops::per_block_cast({.x = reshaped(m, {experts * rows, width}),
                       .out = reshaped(out, {experts * rows, width}),
                       .out_sf = reshaped(scales, {experts * rows / 128, width / 128}),
                       .format = DType::e4m3,
                       .block_size = {{128, 128}}},
                      nullptr);
}

/// The same in MXFP4, with a power of two for each 32 columns.
Fp4Weights quantise(const Tensor& matrices) {
  const ts::TensorView& m = matrices.view();
  const int64_t experts = m.shape[0], rows = m.shape[1], width = m.shape[2];
  Fp4Weights w;
  w.codes = Tensor(m.device, DType::i8, {experts, rows, width / 2});  // two in a byte
  const Tensor scales(m.device, DType::f32, {experts * rows, width / 32});
  ops::per_token_cast({.x = reshaped(m, {experts * rows, width}),
                       .out = reshaped(w.codes, {experts * rows, width / 2}),
                       .out_sf = scales,
                       .format = DType::e2m1,
                       .num_per_channels = 32,
                       .round_sf = true},
                      nullptr);
  std::vector<uint8_t> exponents;
  for (const uint32_t bits : scales.download<uint32_t>()) {
    exponents.push_back(static_cast<uint8_t>(bits >> 23));
  }
  w.exponents = filled(m.device, DType::u8, {experts, rows, width / 32}, exponents);
  w.packed = Tensor(m.device, DType::u8, {experts, rows / 64, width / 128, 4096});
  w.shift = Tensor(m.device, DType::u8, {experts, rows / 64, width / 128, 64, 4});
  w.scale = Tensor(m.device, DType::f32, {experts, rows, width / 128});
  ops::mxfp4_prepack(
      {.w = w.codes, .w_sf = w.exponents, .out = w.packed, .out_shift = w.shift, .out_sf = w.scale},
      nullptr);
  return w;
}

ExpertWeights experts(ts::Device device, Random& random, const LayerKind& kind) {
  ExpertWeights w;
  w.gate = random.matrix(kExperts, kHidden, 2);
  if (kind.by_hash) {
    std::vector<int32_t> table;
    for (int32_t id = 0; id < kVocabulary; ++id) {
      const auto first = id % static_cast<int32_t>(kExperts);
      const auto step =
          1 + id / static_cast<int32_t>(kExperts) % (static_cast<int32_t>(kExperts) - 1);
      table.insert(table.end(), {first, (first + step) % static_cast<int32_t>(kExperts)});
    }
    w.table = filled(device, DType::i32, {kVocabulary, kChosen}, table);
  } else {
    w.bias = random.tensor(DType::f32, {kExperts}, 0.1);
  }
  const int64_t all = kExperts + kShared;
  const Tensor w13 =
      random.tensor(DType::f32, {all, 2 * kInner, kHidden}, 1 / std::sqrt(double{kHidden}));
  const Tensor w2 =
      random.tensor(DType::f32, {all, kHidden, kInner}, 1 / std::sqrt(double{kInner}));
  if (kind.in_fp4) {
    w.fp4_13 = quantise(w13), w.fp4_2 = quantise(w2);
  } else {
    quantise(w13, w.w13, w.w13_sf), quantise(w2, w.w2, w.w2_sf);
  }
  return w;
}

Tensor angles(ts::Device device) {
  std::vector<float> values;
  for (int64_t position = 0; position < kContext; ++position) {
    for (int64_t pair = 0; pair < kRotated / 2; ++pair) {
      const double angle =
          static_cast<double>(position) * std::pow(1e4, -2 * static_cast<double>(pair) / kRotated);
      values.push_back(static_cast<float>(std::cos(angle)));
      values.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return filled(device, DType::f32, {kContext, kRotated}, values);
}

}  // namespace

ProjectedColumns projected_columns(int64_t ratio) {
  ProjectedColumns c{};
  c.key = c.query + kHeads * kChannels;
  c.compressor = c.key + kChannels;
  c.index_compressor = c.compressor + compressor_columns(ratio, kChannels);
  c.index_weight = c.index_compressor + (ratio == 4 ? compressor_columns(4, kIndexChannels) : 0);
  c.count = c.index_weight + (ratio == 4 ? kIndexHeads : 0);
  return c;
}

Weights random_weights(ts::Device device, uint64_t seed) {
  Random random(device, seed);
  Weights w;
  w.embedding = random.tensor(DType::bf16, {kVocabulary, kHidden}, 1);
  w.out = random.matrix(kVocabulary, kHidden, 2);
  w.cos_sin = angles(device);
  for (const LayerKind& kind : kLayers) {
    LayerWeights& layer = w.layers.emplace_back();
    layer.before_attention = mix(random, kStreams * (kStreams + 2), 3);
    layer.before_experts = mix(random, kStreams * (kStreams + 2), 3);
    layer.attention = attention(random, kind.ratio);
    layer.experts = experts(device, random, kind);
    if (kind.has_engram) layer.engram = remembered(random, kText, w.out);
  }
  w.head = mix(random, kStreams, 1);
  return w;
}

}  // namespace model
