#pragma once
// Ranks groups of experts within a warp. The lanes are dealt to the groups in turn; each lane reads
// some members of its group, then the lanes of a group combine their results.

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

  int64_t lanes() const { return lanes_; }            // lanes per group
  int64_t rounds() const { return rounds_; }          // most members that one lane reads
  const dsl::Value& group() const { return group_; }  // of this lane; surplus lanes: >= num_groups
  const dsl::Value& place() const { return place_; }  // index of this lane in its group
  /// The member that this lane reads in a round; >= `members` if there is none.
  dsl::Value member(const dsl::Value& round) const { return round * lanes_ + place_; }

  /// The value of this lane's group: the sum of the `num_topk_sum` (1 or 2) largest rankable values
  /// of its members. NaN counts as -infinity.
  dsl::Value value(int64_t num_topk_sum,
                   const std::function<dsl::Value(const dsl::Value& round)>& value_of) const;
  /// The number of groups with a larger value, or with an equal value and a smaller index.
  dsl::Value rank(const dsl::Value& value) const;

 private:
  dsl::Builder& k_;
  int64_t num_groups_, members_, lanes_, rounds_;
  dsl::Value group_, place_;
};

}  // namespace tessera::kernels::moe
