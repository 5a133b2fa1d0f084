#pragma once
// Group-limited routing: experts compete only within the groups that win.

#include "kernels/moe/expert_row.h"

namespace tessera::kernels::moe {

/// Which groups win: bit g * lanes_per_group(num_groups) of the result.
///
///   values   f32 [slots] of a row, rankable
///   warps    of the block, each with a row of its own
dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, int64_t warps, const ExpertRow& row,
                          const dsl::Ref& values);

}  // namespace tessera::kernels::moe
