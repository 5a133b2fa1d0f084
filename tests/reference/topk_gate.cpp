#include "tests/reference/topk_gate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tessera::reference {

test::HostTensor topk_gate(const test::HostTensor& scores, int64_t num_topk) {
  const int64_t num_tokens = scores.shape()[0];
  const int64_t num_experts = scores.shape()[1];
  test::HostTensor topk_idx(DType::i64, {num_tokens, num_topk});
  std::vector<int64_t> experts(static_cast<size_t>(num_experts));
  std::vector<double> keys(static_cast<size_t>(num_experts));
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t e = 0; e < num_experts; ++e) {
      const double score = scores.value(t * num_experts + e);
      keys[static_cast<size_t>(e)] =
          std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
    }
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(), [&](int64_t a, int64_t b) {
      return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
    });
    for (int64_t k = 0; k < num_topk; ++k) {
      topk_idx.set_bits(t * num_topk + k, static_cast<uint64_t>(experts[static_cast<size_t>(k)]));
    }
  }
  return topk_idx;
}

}  // namespace tessera::reference
