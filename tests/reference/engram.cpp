#include "tests/reference/engram.h"

#include <cmath>
#include <vector>

namespace tessera::reference {

using test::HostTensor;

HostTensor fused_weight(const HostTensor& weight_hidden, const HostTensor& weight_embed) {
  HostTensor fused(DType::f32, weight_hidden.shape());
  for (int64_t i = 0; i < fused.size(); ++i) {
    fused.set_value(i, weight_hidden.value(i) * weight_embed.value(i));  // exact in f64
  }
  return fused;
}

HostTensor engram_make_offsets(const HostTensor& vocab_sizes) {
  const Dims& shape = vocab_sizes.shape();
  const int64_t tables = shape[1] * shape[2];
  HostTensor offsets(DType::i32, {shape[0], tables});
  for (int64_t l = 0; l < shape[0]; ++l) {
    uint32_t sum = 0;
    for (int64_t j = 0; j < tables; ++j) {
      offsets.set_bits(l * tables + j, sum);
      sum += static_cast<uint32_t>(vocab_sizes.bits(l * tables + j));
    }
  }
  return offsets;
}

HostTensor engram_hash(const HostTensor& ngram_token_ids, const HostTensor& multipliers,
                       const HostTensor& vocab_sizes, const HostTensor& offsets,
                       const HostTensor* image_token_mask) {
  const int64_t num_tokens = ngram_token_ids.shape()[0], ngram = ngram_token_ids.shape()[1];
  const int64_t num_layers = multipliers.shape()[0], tables = vocab_sizes.shape()[2];
  const int64_t columns = (ngram - 1) * tables;
  const auto i32_at = [](const HostTensor& tensor, int64_t element) {
    return static_cast<int32_t>(static_cast<uint32_t>(tensor.bits(element)));
  };
  HostTensor out(DType::i32, {num_layers, num_tokens, columns});
  for (int64_t l = 0; l < num_layers; ++l) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      uint64_t h = 0;
      for (int64_t i = 0; i < ngram; ++i) {
        const auto id = static_cast<uint64_t>(int64_t{i32_at(ngram_token_ids, t * ngram + i)});
        h ^= id * multipliers.bits(l * ngram + i);
        for (int64_t j = 0; i >= 1 && j < tables; ++j) {
          const int64_t column = (i - 1) * tables + j;
          const int64_t size = i32_at(vocab_sizes, l * columns + column);
          int64_t row = 0;
          if (size > 0) {
            row = static_cast<int64_t>(h) % size;
            if (row < 0) row += size;
          }
          const int64_t sum = row + i32_at(offsets, l * columns + column);
          const bool is_image = image_token_mask != nullptr && image_token_mask->bits(t) != 0;
          out.set_bits((l * num_tokens + t) * columns + column,
                       is_image ? 0xFFFFFFFFU : static_cast<uint32_t>(static_cast<uint64_t>(sum)));
        }
      }
    }
  }
  return out;
}

NgramIds engram_ngram_ids(const HostTensor& token_ids, const HostTensor& row_start,
                          const HostTensor* history, int64_t ngram, int64_t pad) {
  const int64_t rows = token_ids.size(), requests = row_start.size() - 1, before = ngram - 1;
  const auto number = [](const HostTensor& tensor, int64_t i) {
    return static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(tensor.bits(i))));
  };
  NgramIds result{HostTensor(DType::i32, {rows, ngram}),
                  HostTensor(DType::i32, {requests, before})};
  const auto set = [](HostTensor& tensor, int64_t i, int64_t value) {
    tensor.set_bits(i, static_cast<uint32_t>(static_cast<uint64_t>(value)));
  };
  for (int64_t i = 0; i < rows * ngram; ++i) set(result.ids, i, pad);
  for (int64_t b = 0; b < requests; ++b) {
    int64_t first = number(row_start, b), end = number(row_start, b + 1);
    const bool ascends = first >= 0 && first <= end && end <= rows && (b > 0 || first == 0);
    if (!ascends) first = end = 0;
    // Ids of the history, then those of the rows.
    std::vector<int64_t> all;
    for (int64_t j = 0; j < before; ++j) {
      all.push_back(history == nullptr ? pad : number(*history, b * before + j));
    }
    for (int64_t r = first; r < end; ++r) {
      all.push_back(number(token_ids, r));
      for (int64_t i = 0; i < ngram; ++i) {
        set(result.ids, r * ngram + i, all[all.size() - 1 - static_cast<size_t>(i)]);
      }
    }
    for (int64_t j = 0; j < before; ++j) {
      set(result.next_history, b * before + j,
          all[all.size() - static_cast<size_t>(before) + static_cast<size_t>(j)]);
    }
  }
  return result;
}

HostTensor engram_embed(const HostTensor& ngram_token_ids, const HostTensor& multipliers,
                        const HostTensor& vocab_sizes, const HostTensor& offsets,
                        const HostTensor& table) {
  const auto layer = [](const HostTensor& tensor) {
    Dims shape = {1};
    for (int i = 0; i < tensor.shape().rank; ++i) shape.push_back(tensor.shape()[i]);
    HostTensor result(tensor.dtype(), shape);
    for (int64_t i = 0; i < tensor.size(); ++i) result.set_bits(i, tensor.bits(i));
    return result;
  };
  const HostTensor rows =
      engram_hash(ngram_token_ids, layer(multipliers), layer(vocab_sizes), layer(offsets));
  const int64_t entries = offsets.size(), columns = table.shape()[1];
  HostTensor out(table.dtype(), {ngram_token_ids.shape()[0], entries * columns});
  for (int64_t i = 0; i < rows.size(); ++i) {
    const double offset = offsets.value(i % entries), size = vocab_sizes.value(i % entries);
    const bool fits =
        size > 0 && offset >= 0 && offset + size <= static_cast<double>(table.shape()[0]);
    for (int64_t d = 0; d < columns; ++d) {
      const auto row = static_cast<int64_t>(rows.value(i));
      out.set_bits(i * columns + d, fits ? table.bits(row * columns + d) : 0);
    }
  }
  return out;
}

EngramGate engram_gate_fwd(const HostTensor& x, const HostTensor& k, const HostTensor& v,
                           const HostTensor& weight_fused, double eps, double clamp_value,
                           const HostTensor* image_token_mask) {
  const int rank = x.shape().rank;
  const int64_t streams = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
  Dims scores;
  for (int i = 0; i + 1 < rank; ++i) scores.push_back(x.shape()[i]);
  EngramGate result{HostTensor(DType::bf16, x.shape()), HostTensor(DType::f32, scores),
                    HostTensor(DType::f32, scores), HostTensor(DType::f32, scores),
                    HostTensor(DType::f32, scores)};
  const auto d = static_cast<double>(hidden);
  for (int64_t row = 0; row < num_elements(scores); ++row) {
    const int64_t h = row % streams, t = row / streams;
    if (image_token_mask != nullptr && image_token_mask->bits(t) != 0) {
      for (int64_t e = row * hidden; e < (row + 1) * hidden; ++e) {
        result.out.set_bits(e, x.bits(e));
      }
      for (HostTensor* saved : {&result.dot, &result.gate_score, &result.rstd_x, &result.rstd_k}) {
        saved->set_value(row, 0);
      }
      continue;
    }
    double sx = 0, sk = 0, dot = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      const double xi = x.value(row * hidden + i), ki = k.value(row * hidden + i);
      sx += xi * xi;
      sk += ki * ki;
      dot += xi * weight_fused.value(h * hidden + i) * ki;
    }
    const double rx = 1 / std::sqrt(sx / d + eps), rk = 1 / std::sqrt(sk / d + eps);
    const double u = dot * rx * rk / std::sqrt(d);
    // NaN stays NaN
    const double clamped = std::fabs(u) < clamp_value ? clamp_value : std::fabs(u);
    const double z = std::copysign(std::sqrt(clamped), u);
    const double g = 1 / (1 + std::exp(-z));
    for (int64_t i = 0; i < hidden; ++i) {
      const auto sum = static_cast<float>(x.value(row * hidden + i) + g * v.value(t * hidden + i));
      result.out.set_value(row * hidden + i, static_cast<double>(sum));
    }
    result.dot.set_value(row, dot);
    result.gate_score.set_value(row, g);
    result.rstd_x.set_value(row, rx);
    result.rstd_k.set_value(row, rk);
  }
  return result;
}

}  // namespace tessera::reference
