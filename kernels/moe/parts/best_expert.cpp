#include "kernels/moe/parts/best_expert.h"

#include <limits>

namespace tessera::kernels::moe {
namespace {

constexpr int64_t kRun = 4;
constexpr int64_t kNoExpert = 0x7FFFFFFF;

}  // namespace

dsl::Value rankable(const dsl::Value& score) {
  return max(score + 0.0f, -std::numeric_limits<float>::infinity());
}

dsl::Value order_key(dsl::Builder& k, const dsl::Value& rankable_score) {
  using namespace dsl;
  auto bits = k.let("bits", reinterpret(DType::i32, rankable_score));
  return u32(bits ^ (bits >> 31 | std::numeric_limits<int32_t>::min()));
}

Ranking::Ranking(dsl::Builder& k, int64_t slots, const OfSlot& key_of, OfSlot expert_of)
    : k_(k),
      expert_of_(std::move(expert_of)),
      runs_((slots + kRun - 1) / kRun),
      keys_(k.local(DType::u32, {runs_ * kRun}, "keys")),
      places_(k.local(DType::u32, {runs_}, "places")) {
  using namespace dsl;
  k.unrolled(slots, [&](Value slot) { keys_(slot) = key_of(slot); });
  if (const int64_t rest = runs_ * kRun - slots; rest > 0) {
    k.unrolled(rest, [&](Value i) { keys_(slots + i) = kTaken; });
  }
  k.unrolled(runs_, [&](Value run) { sort(run); });
}

/// Odd-even transposition sort: swaps neighbours whose later key is larger, so equal keys stay in
/// order.
void Ranking::sort(const dsl::Value& run) {
  using namespace dsl;
  auto place = k_.local(DType::u32, {kRun}, "place");
  k_.unrolled(kRun, [&](Value i) { place(i) = u32(i); });
  for (int64_t pass = 0; pass < kRun; ++pass) {
    for (int64_t i = pass % 2; i + 1 < kRun; i += 2) {
      auto first = k_.let("first", keys_(run * kRun + i));
      auto second = k_.let("second", keys_(run * kRun + i + 1));
      auto of_first = k_.let("of_first", place(i)), of_second = k_.let("of_second", place(i + 1));
      keys_(run * kRun + i) = max(first, second);
      keys_(run * kRun + i + 1) = min(first, second);
      place(i) = select(second > first, of_second, of_first);
      place(i + 1) = select(second > first, of_first, of_second);
    }
  }
  places_(run) = place(0) | place(1) << 2 | place(2) << 4 | place(3) << 6;
}

dsl::Value Ranking::take() {
  using namespace dsl;
  auto best = k_.var(DType::u32, kTaken, "best");
  k_.unrolled(runs_, [&](Value run) { best = max(best, keys_(run * kRun)); });
  auto top = k_.let("top", k_.warp_max(best));
  const auto first_of = [&](const Value& run) {
    return expert_of_(run * kRun + i32(places_(run) & 3));
  };
  auto candidate = k_.var(DType::i32, kNoExpert, "candidate");
  k_.unrolled(runs_, [&](Value run) {
    candidate = min(candidate, select(keys_(run * kRun) == top, first_of(run), i32(kNoExpert)));
  });
  auto expert = k_.let("expert", k_.warp_min(candidate));
  k_.unrolled(runs_, [&](Value run) {
    auto taken = k_.let("taken", first_of(run) == expert);
    k_.unrolled(kRun - 1, [&](Value i) {
      keys_(run * kRun + i) = select(taken, keys_(run * kRun + i + 1), keys_(run * kRun + i));
    });
    auto last = keys_(run * kRun + (kRun - 1));
    last = select(taken, cast(DType::u32, kTaken), last);
    places_(run) = select(taken, places_(run) >> 2, places_(run));
  });
  return expert;
}

}  // namespace tessera::kernels::moe
