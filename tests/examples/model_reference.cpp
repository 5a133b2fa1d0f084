#include "tests/examples/model_reference.h"

#include <tessera/dsl/base/small_float.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::test {
namespace {

using namespace model;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

double dot(const double* a, const double* b, int64_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

/// Rows `first` .. `end` - 1 of a matrix, times a vector.
Vector product(const Vector& matrix, const Vector& x, int64_t first, int64_t end) {
  const auto width = static_cast<int64_t>(x.size());
  Vector result;
  for (int64_t row = first; row < end; ++row) {
    result.push_back(dot(&matrix[at(row * width)], x.data(), width));
  }
  return result;
}
Vector product(const Vector& matrix, const Vector& x) {
  return product(matrix, x, 0, static_cast<int64_t>(matrix.size() / x.size()));
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double inverse_size(const double* x, int64_t count) {
  return 1 / std::sqrt(dot(x, x, count) / static_cast<double>(count) + 1e-6);
}

Vector normalised(Vector x, const Vector& weight) {
  const double r = inverse_size(x.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) x[i] *= r * weight[i];
  return x;
}

/// Rotates the last channels of a head by the angles of a position, or back.
void rotate(double* head, int64_t channels, const Vector& cos_sin, int64_t position,
            double direction = 1) {
  double* const pairs = head + channels - kRotated;
  for (int64_t i = 0; i < kRotated; i += 2) {
    const double c = cos_sin[at(position * kRotated + i)];
    const double s = direction * cos_sin[at(position * kRotated + i + 1)];
    const double a = pairs[i], b = pairs[i + 1];
    pairs[i] = a * c - b * s, pairs[i + 1] = a * s + b * c;
  }
}

/// Weights that sum to 1 with those of the sink.
void softmax(Vector& x, double sink) {
  const double most = std::max(sink, *std::max_element(x.begin(), x.end()));
  double sum = std::exp(sink - most);
  for (double& value : x) sum += value = std::exp(value - most);
  for (double& value : x) value /= sum;
}

/// Entries of a text from the compressor's rows of its tokens.
std::vector<Vector> compressed(const std::vector<Vector>& rows, int64_t ratio, int64_t channels,
                               const CompressorWeights& weights, const Vector& cos_sin) {
  const Vector ape = values_of(weights.ape), norm = values_of(weights.norm);
  const int64_t count = static_cast<int64_t>(rows.size()) / ratio;
  std::vector<Vector> entries;
  for (int64_t entry = 0; entry < count; ++entry) {
    Vector result;
    for (int64_t d = 0; d < channels; ++d) {
      Vector scores, kv;
      for (int64_t slot = 0; slot < (ratio == 4 ? 8 : ratio); ++slot) {
        // With ratio 4 the four tokens before come first, in columns of their own.
        const bool is_older = ratio == 4 && slot < 4;
        const int64_t token = ratio == 4 ? entry * 4 - 4 + slot : entry * ratio + slot;
        if (token < 0) continue;
        const int64_t column = ratio == 4 && !is_older ? channels : 0;
        const int64_t score_column = column + (ratio == 4 ? 2 : 1) * channels;
        kv.push_back(rows[at(token)][at(column + d)]);
        scores.push_back(rows[at(token)][at(score_column + d)] + ape[at(slot * channels + d)]);
      }
      softmax(scores, -INFINITY);
      result.push_back(dot(kv.data(), scores.data(), static_cast<int64_t>(kv.size())));
    }
    result = normalised(std::move(result), norm);
    rotate(result.data(), channels, cos_sin, entry * ratio);
    entries.push_back(std::move(result));
  }
  return entries;
}

}  // namespace

Vector values_of(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  Vector values;
  if (view.dtype == DType::f32) {
    for (const float value : tensor.download<float>()) values.push_back(static_cast<double>(value));
  } else if (view.dtype == DType::bf16) {
    for (const uint16_t code : tensor.download<uint16_t>()) {
      values.push_back(static_cast<double>(from_bf16(code)));
    }
  } else {
    for (const uint8_t code : tensor.download<uint8_t>()) {
      values.push_back(static_cast<double>(from_e4m3(code)));
    }
  }
  return values;
}

Mixed mixed_input(const MixWeights& weights, const Vector& streams) {
  constexpr int64_t n = kStreams;
  const Vector scale = values_of(weights.scale), base = values_of(weights.base);
  const double r = inverse_size(streams.data(), n * kHidden);
  Vector m = product(values_of(weights.fn), streams);
  for (double& value : m) value *= r;
  Mixed result{Vector(at(kHidden)), {}, Vector(at(n * n))};
  for (int64_t i = 0; i < n; ++i) {
    const double pre = sigmoid(m[at(i)] * scale[0] + base[at(i)]) + 1e-6;
    for (int64_t h = 0; h < kHidden; ++h) result.input[at(h)] += pre * streams[at(i * kHidden + h)];
    result.post.push_back(2 * sigmoid(m[at(n + i)] * scale[1] + base[at(n + i)]));
  }
  Vector& comb = result.comb;
  const auto divide = [&](int64_t step, int64_t other) {  // sums along `step` become 1
    for (int64_t line = 0; line < n; ++line) {
      double sum = 1e-6;
      for (int64_t i = 0; i < n; ++i) sum += comb[at(line * other + i * step)];
      for (int64_t i = 0; i < n; ++i) comb[at(line * other + i * step)] /= sum;
    }
  };
  for (int64_t i = 0; i < n; ++i) {
    Vector line(at(n));
    for (int64_t o = 0; o < n; ++o) {
      const size_t place = at(2 * n + i * n + o);
      line[at(o)] = m[place] * scale[2] + base[place];
    }
    softmax(line, -INFINITY);
    for (int64_t o = 0; o < n; ++o) comb[at(i * n + o)] = line[at(o)] + 1e-6;
  }
  divide(n, 1);
  for (int round = 1; round < 10; ++round) divide(1, n), divide(n, 1);
  result.input = normalised(std::move(result.input), values_of(weights.norm));
  return result;
}

Vector next_streams(const Vector& output, const Vector& streams, const Vector& post,
                    const Vector& comb) {
  Vector result;
  for (int64_t o = 0; o < kStreams; ++o) {
    for (int64_t h = 0; h < kHidden; ++h) {
      double sum = post[at(o)] * output[at(h)];
      for (int64_t i = 0; i < kStreams; ++i) {
        sum += comb[at(i * kStreams + o)] * streams[at(i * kHidden + h)];
      }
      result.push_back(sum);
    }
  }
  return result;
}

Vector recalled(const EngramWeights& weights, const std::vector<int32_t>& tokens, int64_t position,
                const Vector& streams) {
  const auto multipliers = weights.multipliers.download<int64_t>();
  const auto sizes = weights.sizes.download<int32_t>(),
             offsets = weights.offsets.download<int32_t>();
  const Vector table = values_of(weights.table), norm = values_of(weights.norm);
  Vector entries;
  for (int64_t column = 0; column < (kNgram - 1) * kTablesOfNgram; ++column) {
    int64_t hash = 0;
    for (int64_t i = 0; i <= column / kTablesOfNgram + 1; ++i) {
      const int64_t id = position >= i ? tokens[at(position - i)] : -1;
      hash ^= id * multipliers[at(i)];
    }
    const int64_t size = sizes[at(column)], row = (hash % size + size) % size + offsets[at(column)];
    entries.insert(entries.end(), &table[at(row * kTableColumns)],
                   &table[at(row * kTableColumns)] + kTableColumns);
  }
  const Vector kv = product(values_of(weights.key_value), entries);
  Vector result = streams;
  for (int64_t i = 0; i < kStreams; ++i) {
    const double *x = &streams[at(i * kHidden)], *k = &kv[at(i * kHidden)];
    double score = 0;
    for (int64_t h = 0; h < kHidden; ++h) score += x[h] * norm[at(i * kHidden + h)] * k[h];
    score *= inverse_size(x, kHidden) * inverse_size(k, kHidden) / std::sqrt(kHidden);
    const double gate = sigmoid(std::copysign(std::sqrt(std::max(std::abs(score), 1e-6)), score));
    for (int64_t h = 0; h < kHidden; ++h) {
      result[at(i * kHidden + h)] += gate * kv[at(kStreams * kHidden + h)];
    }
  }
  return result;
}

AttentionReference::AttentionReference(const Weights& weights, size_t layer,
                                       const std::vector<Vector>& inputs)
    : cos_sin_(values_of(weights.cos_sin)), ratio_(kLayers[layer].ratio), inputs_(inputs) {
  const AttentionWeights& w = weights.layers[layer].attention;
  in_ = values_of(w.in), out_ = values_of(w.out), sink_ = values_of(w.sink);
  const ProjectedColumns columns = projected_columns(ratio_);
  const Vector key_norm = values_of(w.key_norm);
  std::vector<Vector> rows, index_rows;
  for (const Vector& x : inputs) {
    Vector key = normalised(product(in_, x, columns.key, columns.compressor), key_norm);
    rotate(key.data(), kChannels, cos_sin_, static_cast<int64_t>(keys_.size()));
    keys_.push_back(std::move(key));
    rows.push_back(product(in_, x, columns.compressor, columns.index_compressor));
    index_rows.push_back(product(in_, x, columns.index_compressor, columns.index_weight));
  }
  entries_ = compressed(rows, ratio_, kChannels, w.compressor, cos_sin_);
  if (ratio_ != 4) return;
  index_ = values_of(w.index);
  index_entries_ = compressed(index_rows, ratio_, kIndexChannels, w.index_compressor, cos_sin_);
}

int64_t AttentionReference::num_entries(int64_t position) const {
  return (position + 1) / ratio_;
}

Vector AttentionReference::scores(int64_t position) const {
  const Vector& x = inputs_[at(position)];
  Vector query = product(index_, x);
  const ProjectedColumns columns = projected_columns(ratio_);
  const Vector weights = product(in_, x, columns.index_weight, columns.count);
  Vector result(at(num_entries(position)));
  for (int64_t head = 0; head < kIndexHeads; ++head) {
    double* const q = &query[at(head * kIndexChannels)];
    rotate(q, kIndexChannels, cos_sin_, position);
    for (size_t entry = 0; entry < result.size(); ++entry) {
      const double product_of_head = dot(q, index_entries_[entry].data(), kIndexChannels);
      result[entry] += weights[at(head)] * std::max(product_of_head, 0.0);
    }
  }
  for (double& score : result) score /= std::sqrt(kIndexHeads * kIndexChannels);
  return result;
}

Vector AttentionReference::output(int64_t position, const std::vector<int64_t>& entries) const {
  std::vector<const Vector*> keys;
  for (int64_t i = std::max<int64_t>(position - kWindow + 1, 0); i <= position; ++i) {
    keys.push_back(&keys_[at(i)]);
  }
  for (const int64_t entry : entries) keys.push_back(&entries_[at(entry)]);
  Vector query = product(in_, inputs_[at(position)], 0, kHeads * kChannels), all;
  for (int64_t head = 0; head < kHeads; ++head) {
    double* const q = &query[at(head * kChannels)];
    const double r = inverse_size(q, kChannels);
    for (int64_t d = 0; d < kChannels; ++d) q[d] *= r;
    rotate(q, kChannels, cos_sin_, position);
    Vector weights;
    for (const Vector* key : keys) {
      weights.push_back(dot(q, key->data(), kChannels) / std::sqrt(kChannels));
    }
    softmax(weights, sink_[at(head)]);
    Vector attended(at(kChannels));
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t d = 0; d < attended.size(); ++d) attended[d] += weights[i] * (*keys[i])[d];
    }
    rotate(attended.data(), kChannels, cos_sin_, position, -1);
    all.insert(all.end(), attended.begin(), attended.end());
  }
  return product(out_, all);
}

Routed routed(const ExpertWeights& weights, const Vector& input, int32_t token) {
  Vector scores = product(values_of(weights.gate), input);
  for (double& score : scores) score = std::sqrt(std::log1p(std::exp(score)));
  Routed result;
  if (weights.table.view().rank() > 0) {
    const auto table = weights.table.download<int32_t>();
    for (int64_t k = 0; k < kChosen; ++k) result.ids.push_back(table[at(token * kChosen + k)]);
  } else {
    const Vector bias = values_of(weights.bias);
    result.ids.resize(at(kExperts));
    std::iota(result.ids.begin(), result.ids.end(), 0);
    std::sort(result.ids.begin(), result.ids.end(), [&](int64_t a, int64_t b) {
      return scores[at(a)] + bias[at(a)] > scores[at(b)] + bias[at(b)];
    });
    result.ids.resize(at(kChosen));
  }
  double sum = 0;
  for (const int64_t id : result.ids) sum += scores[at(id)];
  for (const int64_t id : result.ids) result.weights.push_back(1.5 * scores[at(id)] / sum);
  result.ids.push_back(kExperts), result.weights.push_back(1);
  return result;
}

namespace {

/// The matrices of experts: in e4m3 with a scale for each 128 x 128, or in MXFP4 with one for 32 columns.
class ExpertMatrices {
 public:
  ExpertMatrices(const Tensor& e4m3, const Tensor& scales, const Fp4Weights& fp4) {
    if (fp4.codes.view().rank() == 0) {
      values_ = values_of(e4m3), scales_ = values_of(scales);
      return;
    }
    for (const uint8_t pair : fp4.codes.download<uint8_t>()) {
      for (const int code : {pair & 15, pair >> 4}) {
        constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        values_.push_back(code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8]);
      }
    }
    for (const uint8_t exponent : fp4.exponents.download<uint8_t>()) {
      scales_.push_back(std::ldexp(1, exponent - 127));
    }
    rows_ = 1, columns_ = 32;
  }

  /// A row times a vector.
  double times(int64_t row, const Vector& x) const {
    const auto width = static_cast<int64_t>(x.size()), blocks = width / columns_;
    double sum = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      sum += scales_[at(row / rows_ * blocks + b)] *
             dot(&values_[at(row * width + b * columns_)], &x[at(b * columns_)], columns_);
    }
    return sum;
  }

 private:
  Vector values_, scales_;
  int64_t rows_ = 128, columns_ = 128;  // of a scale
};

}  // namespace

Vector expert_output(const ExpertWeights& weights, const Vector& input, const Routed& routed) {
  const ExpertMatrices w13(weights.w13, weights.w13_sf, weights.fp4_13);
  const ExpertMatrices w2(weights.w2, weights.w2_sf, weights.fp4_2);
  Vector result(at(kHidden));
  for (size_t slot = 0; slot < routed.ids.size(); ++slot) {
    const int64_t expert = routed.ids[slot];
    Vector inner;
    for (int64_t i = 0; i < kInner; ++i) {
      const int64_t row = expert * 2 * kInner + i;
      const double gate = std::min(w13.times(row, input), 10.0);
      const double up = std::clamp(w13.times(row + kInner, input), -10.0, 10.0);
      inner.push_back(gate * sigmoid(gate) * up);
    }
    for (int64_t h = 0; h < kHidden; ++h) {
      result[at(h)] += routed.weights[slot] * w2.times(expert * kHidden + h, inner);
    }
  }
  return result;
}

Vector logits(const Weights& weights, const Vector& streams) {
  const Vector scale = values_of(weights.head.scale), base = values_of(weights.head.base);
  const Vector m = product(values_of(weights.head.fn), streams);
  const double r = inverse_size(streams.data(), kStreams * kHidden);
  Vector row(at(kHidden));
  for (int64_t i = 0; i < kStreams; ++i) {
    const double mix = sigmoid(m[at(i)] * r * scale[0] + base[at(i)]) + 1e-6;
    for (int64_t h = 0; h < kHidden; ++h) row[at(h)] += mix * streams[at(i * kHidden + h)];
  }
  return product(values_of(weights.out), normalised(std::move(row), values_of(weights.head.norm)));
}

}  // namespace tessera::test
