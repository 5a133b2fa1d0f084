#include "tests/reference/get_fused_mapping.h"

#include <vector>

namespace tessera::reference {

test::HostTensors get_fused_mapping(const test::HostTensor& topk_idx, int64_t num_experts,
                                    int64_t alignment, int64_t num_positions) {
  using test::HostTensor;
  const int64_t topk = topk_idx.shape()[1];
  HostTensor start(DType::i32, {num_experts}), end(DType::i32, {num_experts});
  HostTensor size(DType::i32, {num_experts});
  HostTensor positions(DType::i32, topk_idx.shape());
  for (int64_t n = 0; n < topk_idx.size(); ++n) positions.set_value(n, -1);
  std::vector<int64_t> pair_at;  // by position, -1: padding
  std::vector<int64_t> expert_at;
  for (int64_t e = 0; e < num_experts; ++e) {
    const auto first = std::ssize(pair_at);
    for (int64_t n = 0; n < topk_idx.size(); ++n) {
      if (static_cast<int64_t>(topk_idx.bits(n)) != e) continue;
      const auto p = std::ssize(pair_at);
      if (num_positions < 0 || p < num_positions) {
        positions.set_value(n, static_cast<double>(p));
      }
      pair_at.push_back(n);
      expert_at.push_back(e);
    }
    while ((std::ssize(pair_at) - first) % alignment != 0) {
      pair_at.push_back(-1);
      expert_at.push_back(-1);
    }
    start.set_value(e, static_cast<double>(first));
    end.set_value(e, static_cast<double>(pair_at.size()));
    size.set_value(e, static_cast<double>(std::ssize(pair_at) - first));
  }
  if (num_positions < 0) num_positions = std::ssize(pair_at);
  pair_at.resize(static_cast<size_t>(num_positions), -1);
  expert_at.resize(static_cast<size_t>(num_positions), -1);
  HostTensor to_expert(DType::i32, {num_positions}), to_token(DType::i32, {num_positions});
  HostTensor to_pair(DType::i32, {num_positions});
  for (int64_t p = 0; p < num_positions; ++p) {
    const int64_t n = pair_at[static_cast<size_t>(p)];
    to_expert.set_value(p, static_cast<double>(expert_at[static_cast<size_t>(p)]));
    to_token.set_value(p, static_cast<double>(n < 0 ? -1 : n / topk));
    to_pair.set_value(p, static_cast<double>(n));
  }
  return {{"pos_to_expert", to_expert},   {"pos_to_token", to_token},
          {"pos_to_token_topk", to_pair}, {"token_topk_to_pos", positions},
          {"expert_start", start},        {"expert_end", end},
          {"num_tokens_per_expert", size}};
}

}  // namespace tessera::reference
