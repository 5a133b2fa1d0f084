#pragma once
// How a warp ranks groups of experts: the lanes are dealt to the groups in turn, each looks at some of
// the members, then they put together what they found.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

/// A power of two, so that shuffles stay within a group.
int64_t lanes_per_group(int64_t num_groups);

class GroupRank {
 public:
  /// At most 32 groups of `members` values.
  GroupRank(dsl::Builder& k, int64_t num_groups, int64_t members);

  int64_t lanes() const { return lanes_; }            // of a group
  int64_t rounds() const { return rounds_; }          // members that a lane looks at, at most
  const dsl::Value& group() const { return group_; }  // of this lane; beyond the last there is none
  const dsl::Value& place() const { return place_; }  // of this lane in it
  /// The member that this lane looks at in a round; beyond the last there is none.
  dsl::Value member(const dsl::Value& round) const { return round * lanes_ + place_; }

  /// The value of the group of this lane: the sum of the `num_topk_sum` (1 or 2) largest of its
  /// members' values, rankable ones; NaN counts as -infinity.
  dsl::Value value(int64_t num_topk_sum,
                   const std::function<dsl::Value(const dsl::Value& round)>& value_of) const;
  /// How many groups have a larger value, or the same one and a smaller number.
  dsl::Value rank(const dsl::Value& value) const;

 private:
  dsl::Builder& k_;
  int64_t num_groups_, members_, lanes_, rounds_;
  dsl::Value group_, place_;
};

}  // namespace tessera::kernels::moe
