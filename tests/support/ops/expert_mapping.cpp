#include "tests/support/ops/expert_mapping.h"

#include <numeric>
#include <vector>

#include "tests/support/random_tensor.h"

namespace tessera::test {

HostTensor random_topk_idx(int64_t num_tokens, int64_t num_topk, int64_t num_experts,
                           uint64_t seed) {
  HostTensor topk_idx(DType::i64, {num_tokens, num_topk});
  Random random(seed);
  std::vector<int64_t> experts(static_cast<size_t>(num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (int64_t flat = 0; flat < topk_idx.size(); ++flat) {
    // the first num_topk of a shuffle that goes on from token to token
    const int64_t slot = flat % num_topk;
    const bool possible = slot < num_experts;
    if (possible) {
      std::swap(experts[static_cast<size_t>(slot)],
                experts[static_cast<size_t>(slot + random.below(num_experts - slot))]);
    }
    const int64_t id =
        possible && random.below(3) != 0 ? experts[static_cast<size_t>(slot)] : int64_t{-1};
    topk_idx.set_bits(flat, static_cast<uint64_t>(id));
  }
  return topk_idx;
}

ExpertMapping mapping_of(const HostTensor& topk_idx, int64_t num_experts, int64_t alignment) {
  ExpertMapping mapping{HostTensor(DType::i32, topk_idx.shape()), {}};
  std::vector<int32_t> experts;  // by position
  for (int64_t flat = 0; flat < topk_idx.size(); ++flat) {
    mapping.token_topk_to_pos.set_value(flat, -1);
  }
  for (int64_t e = 0; e < num_experts; ++e) {
    for (int64_t flat = 0; flat < topk_idx.size(); ++flat) {
      if (static_cast<int64_t>(topk_idx.bits(flat)) != e) continue;
      mapping.token_topk_to_pos.set_value(flat, static_cast<double>(experts.size()));
      experts.push_back(static_cast<int32_t>(e));
    }
    while (std::ssize(experts) % alignment != 0) experts.push_back(-1);
  }
  mapping.pos_to_expert = HostTensor(DType::i32, {std::ssize(experts)});
  for (int64_t p = 0; p < std::ssize(experts); ++p) {
    mapping.pos_to_expert.set_value(p, experts[static_cast<size_t>(p)]);
  }
  return mapping;
}

}  // namespace tessera::test
