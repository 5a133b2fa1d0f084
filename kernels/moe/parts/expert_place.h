#pragma once
// The place of an expert: the replica that a token takes, and its local id on this rank.

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::moe {

/// The inputs to_physical_map [experts, num_replicas] and logical_count [experts], i32.
class ReplicaMap {
 public:
  ReplicaMap(dsl::Builder& k, int64_t experts)
      : k_(k),
        num_replicas_(k.dim("num_replicas")),
        physical_(k.input("to_physical_map", DType::i32, {experts, num_replicas_}, {.align = 4})),
        count_(k.input("logical_count", DType::i32, {experts}, {.align = 4})) {}

  /// Returns the physical expert, below `num_physical`, of replica `seed` modulo the number of
  /// replicas. An expert without replicas gives -1 and a report, unless the lane is `idle` or the
  /// expert is negative.
  dsl::Value replica(const dsl::Value& expert, const dsl::Value& seed, const dsl::Value& idle,
                     const dsl::Value& num_physical) const {
    using namespace dsl;
    auto replicas = k_.let("replicas_of_expert", count_(expert));
    auto choice = seed % i64(max(replicas, 1));
    auto has_replicas = replicas >= 1 && replicas <= num_replicas_;
    k_.report_unless(has_replicas || idle || expert < 0, out_of_range("logical_count"));
    auto id = k_.let("physical", select(has_replicas, physical_(expert, i32(choice)), -1));
    k_.report_unless(id < num_physical, out_of_range("to_physical_map"));
    return id;
  }

 private:
  dsl::Builder& k_;
  dsl::Value num_replicas_;
  dsl::Ref physical_, count_;
};

/// The scalars that define the physical experts of this rank.
class ExpertRanks {
 public:
  explicit ExpertRanks(dsl::Builder& k)
      : k_(k),
        ep_rank_(k.scalar("ep_rank", DType::i32)),
        num_physical_(k.scalar("num_physical", DType::i32)),
        experts_per_rank_(k.scalar("experts_per_rank", DType::i32)),
        tp_rank_(k.scalar("tp_rank", DType::i32)),
        num_tp_ranks_(k.scalar("num_tp_ranks", DType::i32)) {}

  const dsl::Value& ep_rank() const { return ep_rank_; }
  const dsl::Value& num_physical() const { return num_physical_; }
  /// The local id of physical expert `id`; -1 if it lives on another rank.
  dsl::Value local_id(const dsl::Value& id) const {
    using namespace dsl;
    auto rank = k_.let("rank", max(id, 0) / experts_per_rank_);
    auto row_of_ranks = k_.let("row_of_ranks", rank / num_tp_ranks_);
    auto here = id >= 0 && id < num_physical_ && rank - row_of_ranks * num_tp_ranks_ == tp_rank_;
    return select(here, id - (rank - row_of_ranks) * experts_per_rank_, -1);
  }

 private:
  dsl::Builder& k_;
  dsl::Value ep_rank_, num_physical_, experts_per_rank_, tp_rank_, num_tp_ranks_;
};

}  // namespace tessera::kernels::moe
