#pragma once
// The tensors, the pairs of a block and the padding that the kernels of get_fused_mapping and moe_plan share.

#include <functional>
#include <optional>

#include "dsl/builder.h"
#include "kernels/moe/parts/mapping_kernels.h"

namespace tessera::kernels::moe {

class MappingTensors {
 protected:
  MappingTensors(const char* name, const MappingSpec& spec);

  dsl::Value aligned(const dsl::Value& size) const;
  /// Writes -1 to positions first, first + step, ... below `end`.
  void pad(const dsl::Value& first, const dsl::Value& end, int64_t step);
  void pad(const dsl::Value& first, const dsl::Value& end, const dsl::Value& step);

  /// The first position of an expert whose range write_range() has written in an earlier kernel.
  dsl::Value start_of(const dsl::Value& expert) const;
  /// Writes the range of an expert that has `size` pairs and `padded` positions, up to `end`.
  void write_range(const dsl::Value& expert, const dsl::Value& end, const dsl::Value& padded,
                   const dsl::Value& size);

  /// Allocates table_ for a block of `warps` warps.
  void make_table(int warps);
  /// Loads pairs [begin, end) to registers, `rounds` per thread, at most `most`. The pairs of a
  /// thread are 32 apart; the pairs of a warp are contiguous.
  void load_pairs(const dsl::Value& begin, const dsl::Value& end, const dsl::Value& rounds,
                  int64_t most);
  /// Numbers the pairs of each expert within their warp and leaves the counts in table_.
  void number_pairs();
  /// Replaces column `expert` of table_ with exclusive sums over the warps; adds the total to
  /// `size`.
  void sum_over_warps(const dsl::Value& expert, dsl::Ref& size);
  /// Gives every pair its position. `starts` [experts] holds the position of the block's first
  /// pair.
  void place_pairs(const dsl::Ref& starts);
  /// Inclusive prefix sum over the lanes of the warp.
  dsl::Ref lane_prefix_sum(const dsl::Value& value);
  /// Calls body(i, pair) for the pairs of this thread.
  void each_pair(const std::function<void(dsl::Value, dsl::Value)>& body);
  /// The expert of this thread's i-th pair, -1 if there is none.
  dsl::Value expert_of(const dsl::Value& i);

  const MappingSpec s_;
  dsl::Builder k_;
  dsl::Value pairs_, positions_, alignment_;
  // moe_plan calls them pair_to_pos; m_indices, none, pos_to_pair; none, psum, counts.
  std::optional<dsl::Ref> topk_idx_, token_topk_to_pos_;
  std::optional<dsl::Ref> pos_to_expert_, pos_to_token_, pos_to_token_topk_;
  std::optional<dsl::Ref> expert_start_, expert_end_, num_tokens_per_expert_;
  std::optional<dsl::Ref> num_tokens_, weights_, row_weights_;  // of moe_plan alone
  std::optional<dsl::Ref> table_;  // pairs of each expert per warp, later in the earlier warps

 private:
  dsl::Ref output(const char* name, const dsl::Value& extent);
  void declare_pairs();
  void declare_positions();
  /// The pairs that count: those of the first num_tokens tokens.
  dsl::Value pairs_that_count(const dsl::Value& end);
  /// Writes a position that no pair has.
  void pad_position(const dsl::Value& position);
  /// Writes a pair that exists and, if it `fits`, its position.
  void place(const dsl::Value& pair, const dsl::Value& expert, const dsl::Value& position,
             const dsl::Value& fits);

  int warps_ = 0;
  int64_t most_ = 0;
  dsl::Value end_, rounds_, first_;  // end of the block's pairs; rounds; first pair of the lane
  std::optional<dsl::Ref> ids_, numbered_;  // of the lane's pairs
};

}  // namespace tessera::kernels::moe
