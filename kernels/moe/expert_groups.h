#pragma once
// Group-limited routing: experts compete only within the groups that win.

#include "kernels/moe/expert_row.h"

namespace tessera::kernels::moe {

/// A power of two, so that shuffles stay within a group.
int64_t lanes_per_group(const RouterSpec& s);

/// Which groups win: bit g * lanes_per_group(s) of the result. The lanes of the warp are dealt to
/// the groups in turn: each looks at some of the members, then they put together what they found.
///
///   values   f32 [slots] of a row, rankable
///   warps    of the block, each with a row of its own
dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, int64_t warps, const ExpertRow& row,
                          const dsl::Ref& values);

}  // namespace tessera::kernels::moe
