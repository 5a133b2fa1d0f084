#pragma once
// How a warp ranks experts: unsigned keys that order like scores, and one round of picking the best
// of all keys that its lanes hold.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kTaken = 0;  // the key of no expert, below every other
inline constexpr int64_t kMinusInfinityKey = 0x007FFFFF;
inline constexpr int64_t kNoExpert = 0x7FFFFFFF;

/// An unsigned key that orders like the score; +0 equals -0, NaN counts as -inf.
inline dsl::Value order_key(dsl::Builder& k, const dsl::Value& score) {
  using namespace dsl;
  auto bits = k.let("bits", reinterpret(DType::u32, score));
  auto key = select(bits >> 31 == 0, bits | 0x80000000, bits ^ 0xFFFFFFFF);
  auto plus_zero = cast(DType::u32, 0x80000000);
  return select(is_nan(score), cast(DType::u32, kMinusInfinityKey),
                select(score == 0.0f, plus_zero, key));
}

/// The expert whose key a slot of this lane holds.
using ExpertOf = std::function<dsl::Value(const dsl::Value& slot)>;

/// The expert with the largest key of the warp, the smallest id among equals, and marks it taken.
///
///   keys   u32 [slots], local
inline dsl::Value take_best(dsl::Builder& k, const dsl::Ref& keys, int64_t slots,
                            const ExpertOf& expert_of) {
  using namespace dsl;
  auto best = k.var(DType::u32, kTaken, "best");
  k.unrolled(slots, [&](Value slot) { best = max(best, keys(slot)); });
  auto top = k.let("top", k.warp_max(best));
  auto candidate = k.var(DType::i32, kNoExpert, "candidate");
  k.unrolled(slots, [&](Value slot) {
    candidate = min(candidate, select(keys(slot) == top, expert_of(slot), i32(kNoExpert)));
  });
  auto expert = k.let("expert", k.warp_min(candidate));
  k.unrolled(slots, [&](Value slot) {
    keys(slot) = select(expert_of(slot) == expert, cast(DType::u32, kTaken), keys(slot));
  });
  return expert;
}

}  // namespace tessera::kernels::moe
