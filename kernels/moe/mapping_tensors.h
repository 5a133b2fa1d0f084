#pragma once
// What the kernels of get_fused_mapping share: their tensors, and padding.

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
  /// Writes down a pair that exists and, if it `fits`, its position.
  void place(const dsl::Value& pair, const dsl::Value& expert, const dsl::Value& position,
             const dsl::Value& fits);
  /// The id of a pair's expert, -1 if there is none.
  dsl::Value expert_of(const dsl::Value& id) const;

  const MappingSpec s_;
  dsl::Builder k_;
  dsl::Value pairs_, positions_, alignment_;
  std::optional<dsl::Ref> topk_idx_, token_topk_to_pos_;
  std::optional<dsl::Ref> pos_to_expert_, pos_to_token_, pos_to_token_topk_;
  std::optional<dsl::Ref> expert_start_, expert_end_, num_tokens_per_expert_;

 private:
  dsl::Ref output(const char* name, const dsl::Value& extent);
};

}  // namespace tessera::kernels::moe
