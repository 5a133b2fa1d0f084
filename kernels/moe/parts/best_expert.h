#pragma once
// Ranks experts within a warp: unsigned keys that order like scores, and rounds that each take the
// largest key of all lanes.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kTaken = 0;  // the key of no expert, below every other

/// Replaces values that do not order: -0 becomes +0, NaN becomes -inf.
dsl::Value rankable(const dsl::Value& score);

/// Returns an unsigned key that orders like a rankable score and is never kTaken.
dsl::Value order_key(dsl::Builder& k, const dsl::Value& rankable_score);

/// The experts of a warp in the order of their keys, equal keys by smaller id. Each lane keeps its
/// keys in sorted runs of four, so a round reads only the head of each run.
class Ranking {
 public:
  using OfSlot = std::function<dsl::Value(const dsl::Value& slot)>;

  /// Slot i of a lane holds expert expert_of(i), which grows with i, and its key.
  Ranking(dsl::Builder& k, int64_t slots, const OfSlot& key_of, OfSlot expert_of);

  /// Returns the best expert not taken before. At least one must be left.
  dsl::Value take();

 private:
  void sort(const dsl::Value& run);

  dsl::Builder& k_;
  OfSlot expert_of_;
  int64_t runs_;
  dsl::Ref keys_;    // u32 [4 runs]
  dsl::Ref places_;  // u32 [runs], two bits per remaining key: its original place in the run
};

}  // namespace tessera::kernels::moe
