#include "kernels/engram/parts/block_sums.h"

#include <string>

namespace tessera::kernels::engram {
namespace {

using dsl::Value;

/// Sums over the warp; every lane gets the totals.
std::vector<Value> warp_totals(dsl::Builder& k, const std::vector<dsl::Ref>& partial) {
  std::vector<Value> totals;
  for (const dsl::Ref& value : partial) totals.push_back(k.let("warp_total", k.warp_sum(value)));
  return totals;
}

/// values[index]; the last value for a larger index.
Value pick(const std::vector<Value>& values, const Value& index) {
  Value picked = values.back();
  for (size_t i = values.size() - 1; i-- > 0;) {
    picked = select(index == static_cast<int64_t>(i), values[i], picked);
  }
  return picked;
}

/// Shared [warps, 4]: the totals of each warp.
dsl::Ref exchange_totals(dsl::Builder& k, int64_t warps, const std::vector<Value>& totals) {
  auto exchange = k.shared(DType::f32, {warps, 4}, "exchange");
  k.if_(k.lane() == 0,
        [&] { k.vectorized(4, [&](Value i) { exchange(k.warp(), i) = pick(totals, i); }); });
  return exchange;
}

}  // namespace

std::vector<Value> block_sums(dsl::Builder& k, int64_t warps,
                              const std::vector<dsl::Ref>& partial) {
  const auto count = static_cast<int64_t>(partial.size());
  std::vector<Value> sums = warp_totals(k, partial);
  if (warps == 1) return sums;
  auto exchange = exchange_totals(k, warps, sums);
  auto total = k.local(DType::f32, {4}, "total");
  auto next = k.local(DType::f32, {4}, "next");
  k.vectorized(4, [&](Value i) { total(i) = exchange(0, i); });
  for (int64_t warp = 1; warp < warps; ++warp) {
    k.vectorized(4, [&](Value i) { next(i) = exchange(warp, i); });
    k.unrolled(count, [&](Value i) { total(i) = total(i) + next(i); });
  }
  for (int64_t i = 0; i < count; ++i) {
    sums[static_cast<size_t>(i)] = k.let("sum_" + std::to_string(i), total(i));
  }
  return sums;
}

Value block_sum_of_lane(dsl::Builder& k, int64_t warps, const std::vector<dsl::Ref>& partial) {
  auto index = k.let("index", k.lane() % static_cast<int64_t>(partial.size()));
  const std::vector<Value> totals = warp_totals(k, partial);
  if (warps == 1) return k.let("sum", pick(totals, index));
  auto exchange = exchange_totals(k, warps, totals);
  auto sum = k.var(DType::f32, exchange(0, index), "sum");
  k.unrolled(warps - 1, [&](Value warp) { sum += exchange(warp + 1, index); });
  return k.let("lane_sum", sum);
}

}  // namespace tessera::kernels::engram
