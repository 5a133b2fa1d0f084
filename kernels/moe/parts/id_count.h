#pragma once
// How often each id occurs in the slots of a routing: the launches of group_count and of aux_fi,
// which scales the counts.

#include "kernels/signature/launches.h"

namespace tessera::kernels::moe {

/// Adds the launches of either op: counts the input `ids`, i64 [T, K], into `out`.
void count_ids(const Call& c, Launches& go, const char* ids);
/// Number of i32 elements of the workspace.
int64_t count_elements(const Call& c);

/// Ids of cases: spread over the groups, every eighth slot empty.
int64_t spread_id(int64_t slot, int64_t num_groups);

}  // namespace tessera::kernels::moe
