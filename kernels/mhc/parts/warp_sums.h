#pragma once
// Sums many values over a warp, for about one shuffle per value, and over a block.

#include <functional>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::mhc {

/// One of the sums, in the lane that holds it.
struct LaneSum {
  dsl::Value value;
  dsl::Value index;   // which of the values, valid if is_own
  dsl::Value is_own;  // bool: the lane is the first holder of that sum
};

/// Sums each of `values` over the warp in the order of k.warp_sum, by xor 16, 8, 4, 2, 1. At every
/// step a lane keeps one half of the sums and sends the other half: 20 values take 21 shuffles
/// instead of 100.
///
///   const LaneSum sum = warp_sums(k, {a, b, c});
///   k.if_(sum.is_own, [&] { sums(sum.index) = sum.value; });
LaneSum warp_sums(dsl::Builder& k, std::vector<dsl::Value> values);

/// Sums each of `values`, at most one per thread of the block, over the block: as warp_sums, then
/// over the warps in ascending order from +0. Thread v runs `store` with the sum of values[v].
void block_sums(dsl::Builder& k, int64_t warps, const std::vector<dsl::Value>& values,
                const std::function<void(const dsl::Value& total)>& store);

}  // namespace tessera::kernels::mhc
