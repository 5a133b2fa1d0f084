#include "tests/reference/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;

int64_t id_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

}  // namespace

NormalizedWeights normalize_weight(const HostTensor& topk_weights) {
  const int64_t tokens = topk_weights.shape()[0], topk = topk_weights.shape()[1];
  NormalizedWeights result{HostTensor(DType::f32, {tokens}),
                           HostTensor(DType::f32, topk_weights.shape())};
  for (int64_t t = 0; t < tokens; ++t) {
    const auto weight = [&](int64_t slot) {
      return static_cast<float>(topk_weights.value(t * topk + slot));
    };
    float sum = 1e-20F;
    for (int64_t slot = 0; slot < topk; ++slot) sum = sum + weight(slot);
    result.denominator.set_value(t, static_cast<double>(sum));
    for (int64_t slot = 0; slot < topk; ++slot) {
      result.normalized.set_value(t * topk + slot, static_cast<double>(weight(slot) / sum));
    }
  }
  return result;
}

HostTensor mask_indices_by_tp(const HostTensor& indices, const TpRanks& ranks) {
  const int64_t per_rank = ranks.num_experts / ranks.num_ep_ranks;
  const int64_t per_row = ranks.num_tp_ranks * per_rank;
  HostTensor masked(indices.dtype(), indices.shape());
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t id = id_at(indices, i);
    int64_t result = -1;
    if (id >= 0 && id / per_rank % ranks.num_tp_ranks == ranks.tp_rank) {
      const int64_t moved = id - ranks.tp_rank * per_rank;
      result = moved - moved / per_row * (per_row - per_rank);
    }
    masked.set_bits(i, static_cast<uint64_t>(result));
  }
  return masked;
}

HostTensor topk_sum_and_topk_group_idx(const HostTensor& scores, int64_t num_topk_sum,
                                       int64_t num_topk_groups) {
  const int64_t tokens = scores.shape()[0], groups = scores.shape()[1], members = scores.shape()[2];
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto ranked = [](float value) { return std::isnan(value) ? -kInfinity : value; };
  HostTensor topk_group_idx(DType::i64, {tokens, num_topk_groups});
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<float> sums;
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<float> values;
      for (int64_t m = 0; m < members; ++m) {
        values.push_back(ranked(static_cast<float>(scores.value((t * groups + g) * members + m))));
      }
      std::sort(values.begin(), values.end(), std::greater<>());
      sums.push_back(ranked(num_topk_sum == 1 ? values[0] : values[0] + values[1]));
    }
    std::vector<int64_t> order(static_cast<size_t>(groups));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return sums[static_cast<size_t>(a)] > sums[static_cast<size_t>(b)];
    });
    for (int64_t k = 0; k < num_topk_groups; ++k) {
      topk_group_idx.set_bits(t * num_topk_groups + k,
                              static_cast<uint64_t>(order[static_cast<size_t>(k)]));
    }
  }
  return topk_group_idx;
}

HostTensor group_count(const HostTensor& group_idx, int64_t num_groups) {
  HostTensor counts(DType::i32, {num_groups});
  counts.fill_bytes(std::byte{0});
  for (int64_t i = 0; i < group_idx.size(); ++i) {
    const int64_t id = id_at(group_idx, i);
    if (id >= 0 && id < num_groups) counts.set_bits(id, counts.bits(id) + 1);
  }
  return counts;
}

HostTensor aux_fi(const HostTensor& topk_idx, int64_t num_experts, int64_t num_aux_topk) {
  std::vector<int64_t> counts(static_cast<size_t>(num_experts));
  for (int64_t i = 0; i < topk_idx.size(); ++i) {
    const int64_t id = id_at(topk_idx, i);
    if (id >= 0 && id < num_experts) ++counts[static_cast<size_t>(id)];
  }
  const int64_t expected = topk_idx.shape()[0] * num_aux_topk;
  HostTensor fractions(DType::f32, {num_experts});
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t scaled = counts[static_cast<size_t>(e)] * num_experts;
    const float fraction =
        expected == 0 ? 0.0F : static_cast<float>(scaled) / static_cast<float>(expected);
    fractions.set_value(e, static_cast<double>(fraction));
  }
  return fractions;
}

HostTensor inplace_unique_group_indices(const HostTensor& group_indices, int64_t num_groups) {
  const int64_t topk = group_indices.shape()[1];
  HostTensor unique(DType::i64, group_indices.shape());
  for (int64_t t = 0; t < group_indices.shape()[0]; ++t) {
    std::set<int64_t> seen;
    for (int64_t i = t * topk; i < (t + 1) * topk; ++i) {
      const int64_t id = id_at(group_indices, i);
      const bool is_group = id >= 0 && id < num_groups;
      const bool is_new = !is_group || seen.insert(id).second;
      unique.set_bits(i, static_cast<uint64_t>(is_new ? id : -1));
    }
  }
  return unique;
}

}  // namespace tessera::reference
