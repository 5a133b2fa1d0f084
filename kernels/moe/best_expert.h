#pragma once
// How a warp ranks experts: unsigned keys that order like scores, and rounds that each pick the best
// of all keys that its lanes hold.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kTaken = 0;  // the key of no expert, below every other

/// The score without what has no rank of its own: -0 becomes +0, NaN becomes -inf.
dsl::Value rankable(const dsl::Value& score);

/// An unsigned key, never kTaken, that orders like a rankable score.
dsl::Value order_key(dsl::Builder& k, const dsl::Value& rankable_score);

/// The experts of a warp in the order of their keys, the smaller id first among equals. A lane keeps
/// its keys in runs of four that are sorted once, so that a round looks at the first of each alone.
class Ranking {
 public:
  using OfSlot = std::function<dsl::Value(const dsl::Value& slot)>;

  /// Slot i of a lane holds expert expert_of(i), which grows with i, and its key.
  Ranking(dsl::Builder& k, int64_t slots, const OfSlot& key_of, OfSlot expert_of);

  /// The id of the best expert that was not taken before. There has to be one.
  dsl::Value take();

 private:
  void sort(const dsl::Value& run);

  dsl::Builder& k_;
  OfSlot expert_of_;
  int64_t runs_;
  dsl::Ref keys_;    // u32 [4 runs]
  dsl::Ref places_;  // u32 [runs], two bits per key that is left: which of its run it was
};

}  // namespace tessera::kernels::moe
