#include "kernels/moe/expert_groups.h"

#include <bit>
#include <limits>

namespace tessera::kernels::moe {

int64_t lanes_per_group(const RouterSpec& s) {
  return 32 / static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(s.num_groups)));
}

dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, int64_t warps, const ExpertRow& row,
                          const dsl::Ref& values) {
  using namespace dsl;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t members = s.experts / s.num_groups, lanes = lanes_per_group(s);
  // Rows are longer than a group, so that neighbours start at different banks.
  auto ranked = k.shared(DType::f32, {warps, s.num_groups * (members + lanes)}, "ranked");
  row.each([&](const Value& slot, const Value& expert) {
    k.if_(expert < s.experts,
          [&] { ranked(k.warp(), expert + expert / members * lanes) = values(slot); });
  });
  k.sync_warp();
  // the two best of each group
  auto group = k.let("group", k.lane() / lanes), place = k.let("place", k.lane() % lanes);
  auto best = k.var(DType::f32, -kInfinity, "best_of_group");
  auto second = k.var(DType::f32, -kInfinity, "second_of_group");
  k.unrolled((members + lanes - 1) / lanes, [&](Value i) {
    auto member = i * lanes + place;
    k.if_(group < s.num_groups && member < members, [&] {
      auto value = k.let("value", ranked(k.warp(), group * (members + lanes) + member));
      second = max(second, min(best, value));
      best = max(best, value);
    });
  });
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    auto other_best = k.let("other_best", k.shuffle_xor(best, distance));
    auto other_second = k.let("other_second", k.shuffle_xor(second, distance));
    second = max(min(best, other_best), max(second, other_second));
    best = max(best, other_best);
  }
  auto sum = k.let("sum", best + second);
  auto mine = k.let("group_value", select(is_nan(sum), -kInfinity, sum));
  // how many groups are better
  auto rank = k.var(DType::i32, 0, "rank");
  k.unrolled((s.num_groups + lanes - 1) / lanes, [&](Value i) {
    auto other_group = i * lanes + place;
    auto other = k.let("other", k.shuffle(mine, min(other_group, s.num_groups - 1) * lanes));
    auto beats = select(other_group<group, other >= mine, other> mine);
    rank = rank + select(other_group < s.num_groups && beats, 1, 0);
  });
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    rank = rank + k.shuffle_xor(rank, distance);
  }
  return k.ballot(group < s.num_groups && rank < s.num_topk_groups);
}

}  // namespace tessera::kernels::moe
