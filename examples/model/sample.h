#pragma once
// The choice of the next token, on the host.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace model {

/// Chooses among the k best tokens by their probabilities. One sampler goes with one text, so its choices do not depend on
/// the texts beside it.
class Sampler {
 public:
  Sampler(uint64_t seed, int k) : random_(seed), k_(k) {}

  int32_t choose(std::span<const float> logits) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
    std::partial_sort(ids.begin(), ids.begin() + k_, ids.end(), [&](int32_t a, int32_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    double sum = 0;
    for (int i = 0; i < k_; ++i) sum += weight(logit(ids[static_cast<size_t>(i)]) - logit(ids[0]));
    double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
    for (int i = 0; i < k_ - 1; ++i) {
      left -= weight(logit(ids[static_cast<size_t>(i)]) - logit(ids[0]));
      if (left < 0) return ids[static_cast<size_t>(i)];
    }
    return ids[static_cast<size_t>(k_ - 1)];
  }

 private:
  static double weight(float difference) { return std::exp(static_cast<double>(difference)); }

  std::mt19937_64 random_;
  int k_;
};

}  // namespace model
