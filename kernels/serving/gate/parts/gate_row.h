#pragma once
// The scores of one token in the registers of a warp, as moe::ExpertRow places them, and their sum in the
// order that norm_row.h explains: quad q of the row is chunk q / 32 of lane q % 32, so chunk i belongs to
// group i % 16 of the 512 lanes.

#include <algorithm>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

/// The sum of values in the slots of a warp: step(slot, before) is `before` with the value of the slot.
/// Slots beyond the row leave `before` as it is. Every lane gets the sum.
inline dsl::Value sum_of_row(
    dsl::Builder& k, int64_t slots,
    const std::function<dsl::Value(int64_t slot, const dsl::Value& before)>& step) {
  using namespace dsl;
  constexpr int64_t kQuad = 4, kGroups = 16;
  const int64_t chunks = slots / kQuad;
  auto sum = k.var(DType::f32, 0.0f, "row_sum");
  for (int64_t group = 0; group < std::min(chunks, kGroups); ++group) {
    auto lane_sum = k.var(DType::f32, 0.0f, "lane_sum");
    for (int64_t chunk = group; chunk < chunks; chunk += kGroups) {
      for (int64_t i = 0; i < kQuad; ++i) lane_sum = step(chunk * kQuad + i, lane_sum);
    }
    for (const int distance : {1, 2, 4, 8, 16}) lane_sum += k.shuffle_xor(lane_sum, distance);
    if (group == 0) {
      sum = Value(lane_sum);
    } else {
      sum += lane_sum;
    }
  }
  return k.let("sum_of_row", sum);
}

}  // namespace tessera::kernels::serving
