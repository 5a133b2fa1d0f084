#pragma once
// Group-limited routing: only experts of the winning groups compete.

#include "kernels/moe/parts/expert_row.h"

namespace tessera::kernels::moe {

/// Returns the winning groups: bit g * lanes_per_group(num_groups) is set for group g.
///
///   values   f32 [slots] of a row, rankable
/// of the block, one row each
dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, int64_t warps, const ExpertRow& row,
                          const dsl::Ref& values);

}  // namespace tessera::kernels::moe
