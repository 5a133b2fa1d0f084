#pragma once
// Sums over a block, in an order that depends only on the number of warps.

#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::engram {

/// Sums up to four values per thread over the block: over a warp by xor 16, 8, 4, 2, 1, then over
/// the warps in ascending order. Every thread gets the sums.
std::vector<dsl::Value> block_sums(dsl::Builder& k, int64_t warps,
                                   const std::vector<dsl::Ref>& partial);

/// The same sums, but each lane gets only sum lane % count: fewer registers.
dsl::Value block_sum_of_lane(dsl::Builder& k, int64_t warps, const std::vector<dsl::Ref>& partial);

}  // namespace tessera::kernels::engram
