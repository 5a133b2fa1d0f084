#include "tests/reference/hash_gate.h"

#include <array>
#include <cmath>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i64 ? static_cast<int64_t>(bits)
                                      : static_cast<int32_t>(static_cast<uint32_t>(bits));
}

void set_integer(HostTensor& tensor, int64_t element, int64_t value) {
  tensor.set_bits(element, static_cast<uint64_t>(value));
}

using Lanes = std::array<float, 32>;

float butterfly_sum(Lanes values) {
  for (size_t distance = 16; distance > 0; distance /= 2) {
    const Lanes before = values;
    for (size_t lane = 0; lane < 32; ++lane) values[lane] = before[lane] + before[lane ^ distance];
  }
  return values[0];
}

/// The experts of one token; empty: a row of padding.
std::vector<int64_t> experts_of(const HostTensor& token_ids, const HostTensor& table,
                                const HostTensor& logits, int64_t token) {
  const int64_t topk = table.shape()[1], experts = logits.shape()[1];
  const int64_t entry = integer_at(token_ids, token);
  if (entry < 0 || entry >= table.shape()[0]) return {};
  std::vector<int64_t> result;
  for (int64_t k = 0; k < topk; ++k) {
    const int64_t expert = integer_at(table, entry * topk + k);
    const bool exists = expert >= 0 && expert < experts;
    if (exists && !std::isfinite(logits.value(token * experts + expert))) return {};
    result.push_back(exists ? expert : -1);
  }
  return result;
}

}  // namespace

HashedExperts hash_gate(const HostTensor& token_ids, const HostTensor& table,
                        const HostTensor& logits, const HostTensor* num_tokens,
                        const HashGateOptions& o) {
  const int64_t tokens = token_ids.shape()[0], topk = table.shape()[1];
  const int64_t experts = logits.shape()[1], all = topk + o.num_shared_experts;
  const int64_t counted = num_tokens == nullptr ? tokens : integer_at(*num_tokens, 0);
  const auto factor = static_cast<float>(o.routed_scaling_factor);
  HashedExperts result{HostTensor(o.idx_dtype, {tokens, all}),
                       HostTensor(DType::f32, {tokens, all})};
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> ids;
    if (t < counted) ids = experts_of(token_ids, table, logits, t);
    const bool routed = !ids.empty();
    Lanes scores{};
    for (size_t k = 0; k < ids.size(); ++k) {
      if (ids[k] < 0) continue;
      const auto x = static_cast<float>(logits.value(t * experts + ids[k]));
      scores[k] = std::sqrt(x > 20.0F ? x : std::log1p(std::exp(x)));
    }
    const float denominator = butterfly_sum(scores) + 1e-20F;
    for (int64_t k = 0; k < all; ++k) {
      int64_t id = -1;
      float weight = 0;
      if (routed && k < topk) {
        id = ids[static_cast<size_t>(k)];
        weight = scores[static_cast<size_t>(k)] / denominator;
        if (o.scales_routed) weight = weight * factor;
        if (id < 0) weight = 0;
      } else if (routed) {
        id = experts + k - topk;
        weight = o.scales_routed ? 1.0F : 1.0F / factor;
      }
      set_integer(result.topk_idx, t * all + k, id);
      result.topk_weights.set_value(t * all + k, static_cast<double>(weight));
    }
  }
  return result;
}

HostTensors mask_padded_topk(const HostTensors& tensors) {
  const int64_t counted = integer_at(tensors.at("num_tokens"), 0);
  HostTensors result = tensors;
  result.erase("num_tokens");
  for (auto& [name, tensor] : result) {
    const int64_t topk = tensor.shape()[1];
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (i / topk < counted) continue;
      tensor.set_bits(i, name == "topk_idx" ? ~uint64_t{0} : 0);
    }
  }
  return result;
}

}  // namespace tessera::reference
