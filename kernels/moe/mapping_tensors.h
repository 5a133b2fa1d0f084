#pragma once
// What the kernels of get_fused_mapping share: their tensors, the pairs of a block, and padding.

#include <functional>
#include <optional>

#include "dsl/builder.h"
#include "kernels/moe/mapping_kernels.h"

namespace tessera::kernels::moe {

class MappingTensors {
 protected:
  MappingTensors(const char* name, const MappingSpec& spec);

  dsl::Value aligned(const dsl::Value& size) const;
  /// -1 at positions first, first + step, ... below `end`.
  void pad(const dsl::Value& first, const dsl::Value& end, int64_t step);
  void pad(const dsl::Value& first, const dsl::Value& end, const dsl::Value& step);

  /// table_, for a block of so many warps.
  void make_table(int warps);
  /// Pairs [begin, end) to registers, `rounds` of them per thread, at most `most`: those of a
  /// thread are 32 apart, those of a warp one run.
  void load_pairs(const dsl::Value& begin, const dsl::Value& end, const dsl::Value& rounds,
                  int64_t most);
  /// Numbers the pairs of each expert within their warp; leaves how many there are in table_.
  void number_pairs();
  /// Turns column `expert` of table_ into sums over the warps before; adds all to `size`.
  void sum_over_warps(const dsl::Value& expert, dsl::Ref& size);
  /// Gives every pair its position. `starts` [experts]: that of the first pair of the block.
  void place_pairs(const dsl::Ref& starts);
  /// The sum over the lanes of the warp up to this one.
  dsl::Ref lane_prefix_sum(const dsl::Value& value);
  /// Does body(i, pair) for the pairs of this thread.
  void each_pair(const std::function<void(dsl::Value, dsl::Value)>& body);
  /// Expert of the i-th pair of this thread, -1 if there is none.
  dsl::Value expert_of(const dsl::Value& i);

  const MappingSpec s_;
  dsl::Builder k_;
  dsl::Value pairs_, positions_, alignment_;
  std::optional<dsl::Ref> topk_idx_, token_topk_to_pos_;
  std::optional<dsl::Ref> pos_to_expert_, pos_to_token_, pos_to_token_topk_;
  std::optional<dsl::Ref> expert_start_, expert_end_, num_tokens_per_expert_;
  std::optional<dsl::Ref> table_;  // pairs of each expert by warp, then in the warps before

 private:
  dsl::Ref output(const char* name, const dsl::Value& extent);
  /// Writes down a pair that exists and, if it `fits`, its position.
  void place(const dsl::Value& pair, const dsl::Value& expert, const dsl::Value& position,
             const dsl::Value& fits);

  int warps_ = 0;
  int64_t most_ = 0;
  dsl::Value end_, rounds_, first_;  // pairs of the block up to end_, of the lane from first_ on
  std::optional<dsl::Ref> ids_, numbered_;  // of the pairs of the lane
};

}  // namespace tessera::kernels::moe
