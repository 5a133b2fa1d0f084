#pragma once
// Counts the values that the clamp of a gated activation changes.

#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/quant/parts/gated.h"

namespace tessera::kernels {

/// Adds to the output `clamped_count` i64 [totals]: gate above, up above, up below; the caller adds to the
/// others. Each thread counts in registers; a block adds at most three atomics.
class ClampCount {
 public:
  explicit ClampCount(dsl::Builder& k, int64_t totals = 3)
      : k_(k), counts_(k.output("clamped_count", DType::i64, {totals}, {.align = 8})) {}

  void start() {
    clamped_ = k_.local(DType::f32, {3}, "clamped");
    k_.unrolled(3, [&](dsl::Value which) { (*clamped_)(which) = 0.0f; });
  }
  void add(const GatedPair& pair, const dsl::Value& clamp) const {
    const dsl::Value beyond[] = {pair.gate > clamp, pair.up > clamp, pair.up < -clamp};
    for (int which = 0; which < 3; ++which) {
      (*clamped_)(which) = (*clamped_)(which) + select(beyond[which], 1.0f, 0.0f);
    }
  }
  dsl::Ref total(int64_t which) const { return counts_(which); }
  void finish(int64_t warps) const {
    using namespace dsl;
    auto warp_counts = k_.shared(DType::i32, {3, warps}, "warp_counts");
    std::vector<Value> sums;
    for (int which = 0; which < 3; ++which) sums.push_back(k_.warp_sum(i32((*clamped_)(which))));
    k_.if_(k_.lane() == 0, [&] {
      for (int which = 0; which < 3; ++which) {
        warp_counts(which, k_.warp()) = sums[static_cast<size_t>(which)];
      }
    });
    k_.if_(k_.thread() < 3, [&] {
      auto total = k_.var(DType::i32, 0, "total");
      k_.unrolled(warps, [&](Value warp) { total += warp_counts(k_.thread(), warp); });
      k_.if_(total > 0, [&] { k_.atomic_add(counts_(k_.thread()), i64(total)); });
    });
  }

 private:
  dsl::Builder& k_;
  dsl::Ref counts_;
  std::optional<dsl::Ref> clamped_;  // of this thread
};

}  // namespace tessera::kernels
