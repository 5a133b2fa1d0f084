#pragma once
// Sums of many values over a warp for about as many shuffles as there are values, and over a block.

#include <functional>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::mhc {

/// One of the sums, in the lane that has it.
struct LaneSum {
  dsl::Value value;
  dsl::Value index;   // which of the values, where the lane is the first to have it
  dsl::Value is_own;  // bool: so it is
};

/// Sums each of `values` over the warp in the order of k.warp_sum, by xor 16, 8, 4, 2, 1. At every
/// step a lane keeps one half of the sums and gives the other away: 20 values take 21 shuffles, not
/// 100.
///
///   const LaneSum sum = warp_sums(k, {a, b, c});
///   k.if_(sum.is_own, [&] { sums(sum.index) = sum.value; });
LaneSum warp_sums(dsl::Builder& k, std::vector<dsl::Value> values);

/// Sums each of `values`, no more than the block has threads, over the block: as warp_sums, then over
/// the warps in ascending order from +0. Thread v runs `store` with the sum of values[v].
void block_sums(dsl::Builder& k, int64_t warps, const std::vector<dsl::Value>& values,
                const std::function<void(const dsl::Value& total)>& store);

}  // namespace tessera::kernels::mhc
