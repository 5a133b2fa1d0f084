#include "kernels/moe/parts/group_rank.h"

#include <bit>
#include <limits>

namespace tessera::kernels::moe {

using namespace dsl;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kUnrolledRounds = 64;

}  // namespace

int64_t lanes_per_group(int64_t num_groups) {
  return 32 / static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(num_groups)));
}

GroupRank::GroupRank(Builder& k, int64_t num_groups, int64_t members)
    : k_(k),
      num_groups_(num_groups),
      members_(members),
      lanes_(lanes_per_group(num_groups)),
      rounds_((members + lanes_ - 1) / lanes_),
      group_(k.let("group", k.lane() / lanes_)),
      place_(k.let("place", k.lane() % lanes_)) {}

Value GroupRank::value(int64_t num_topk_sum,
                       const std::function<Value(const Value& round)>& value_of) const {
  auto best = k_.var(DType::f32, -kInfinity, "best_of_group");
  auto second = k_.var(DType::f32, -kInfinity, "second_of_group");
  const auto look = [&](const Value& round) {
    k_.if_(group_ < num_groups_ && member(round) < members_, [&] {
      auto value = k_.let("value", value_of(round));
      if (num_topk_sum == 2) second = max(second, min(best, value));
      best = max(best, value);
    });
  };
  if (rounds_ <= kUnrolledRounds) {
    k_.unrolled(rounds_, look);
  } else {
    k_.serial(0, rounds_, look);
  }
  for (int64_t distance = 1; distance < lanes_; distance *= 2) {
    auto other_best = k_.let("other_best", k_.shuffle_xor(best, distance));
    if (num_topk_sum == 2) {
      auto other_second = k_.let("other_second", k_.shuffle_xor(second, distance));
      second = max(min(best, other_best), max(second, other_second));
    }
    best = max(best, other_best);
  }
  if (num_topk_sum == 1) return k_.let("group_value", best);
  auto sum = k_.let("sum", best + second);
  return k_.let("group_value", select(is_nan(sum), -kInfinity, sum));
}

Value GroupRank::rank(const Value& value) const {
  auto rank = k_.var(DType::i32, 0, "rank");
  k_.unrolled((num_groups_ + lanes_ - 1) / lanes_, [&](Value i) {
    auto other_group = i * lanes_ + place_;
    auto other = k_.let("other", k_.shuffle(value, min(other_group, num_groups_ - 1) * lanes_));
    // Equal values rank by their group.
    const Value is_lower = other_group < group_, is_no_less = other >= value;
    const Value is_more = other > value;
    auto beats = select(is_lower, is_no_less, is_more);
    rank = rank + select(other_group < num_groups_ && beats, 1, 0);
  });
  for (int64_t distance = 1; distance < lanes_; distance *= 2) {
    rank = rank + k_.shuffle_xor(rank, distance);
  }
  return k_.let("rank_of_group", rank);
}

}  // namespace tessera::kernels::moe
