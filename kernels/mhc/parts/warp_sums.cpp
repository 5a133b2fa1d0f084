#include "kernels/mhc/parts/warp_sums.h"

#include <utility>

namespace tessera::kernels::mhc {

LaneSum warp_sums(dsl::Builder& k, std::vector<dsl::Value> values) {
  using namespace dsl;
  const auto is_upper = [&](int step) { return (k.lane() & step) != 0; };
  std::vector<std::pair<int, int>> steps;  // xor distance, number of sums before the step
  for (int step = 16; step > 0; step /= 2) {
    const size_t count = values.size(), half = (count + 1) / 2;
    steps.emplace_back(step, static_cast<int>(count));
    if (count == 1) {
      values[0] = k.let("sum", values[0] + k.shuffle_xor(values[0], step));
      continue;
    }
    std::vector<Value> kept;
    for (size_t i = 0; i < half; ++i) {
      const Value &low = values[i], &high = values[half + i < count ? half + i : i];
      const Value given = k.shuffle_xor(select(is_upper(step), low, high), step);
      kept.push_back(k.let("sum", select(is_upper(step), high, low) + given));
    }
    values = std::move(kept);
  }
  // From the last step to the first: the index of the lane's sum among the sums before each step. An
  // odd number of sums was padded by one.
  Value index = i32(0), is_own = k.lane() < 32;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto [lanes, count] = *step;
    if (count == 1) {
      is_own = is_own && !is_upper(lanes);
      continue;
    }
    index = index + select(is_upper(lanes), (count + 1) / 2, 0);
    if (count % 2 == 1) is_own = is_own && index < count;
  }
  return {values[0], k.let("index", index), k.let("is_own", is_own)};
}

void block_sums(dsl::Builder& k, int64_t warps, const std::vector<dsl::Value>& values,
                const std::function<void(const dsl::Value& total)>& store) {
  using namespace dsl;
  const auto count = static_cast<int64_t>(values.size());
  auto partials = k.shared(DType::f32, {count, warps}, "partials");
  const LaneSum sum = warp_sums(k, values);
  k.if_(sum.is_own, [&] { partials(sum.index, k.warp()) = sum.value; });
  k.if_(k.thread() < count, [&] {
    auto total = k.var(DType::f32, 0.0f, "total");
    k.unrolled(warps, [&](Value warp) { total += partials(k.thread(), warp); });
    store(total);
  });
}

}  // namespace tessera::kernels::mhc
