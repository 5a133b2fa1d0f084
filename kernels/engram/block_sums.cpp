#include "kernels/engram/block_sums.h"

namespace tessera::kernels::engram {

std::vector<dsl::Value> block_sums(dsl::Builder& k, int64_t warps,
                                   const std::vector<dsl::Ref>& partial) {
  using namespace dsl;
  std::vector<Value> sums;
  for (const Ref& value : partial) sums.push_back(k.let("warp_total", k.warp_sum(value)));
  if (warps == 1) return sums;
  auto exchange = k.shared(DType::f32, {warps, 4}, "exchange");
  k.if_(k.lane() == 0, [&] {
    k.vectorized(4, [&](Value i) {
      exchange(k.warp(), i) = select(i == 0, sums[0], select(i == 1, sums[1], sums[2]));
    });
  });
  auto total = k.local(DType::f32, {4}, "total");
  auto next = k.local(DType::f32, {4}, "next");
  k.vectorized(4, [&](Value i) { total(i) = exchange(0, i); });
  for (int64_t warp = 1; warp < warps; ++warp) {
    k.vectorized(4, [&](Value i) { next(i) = exchange(warp, i); });
    k.unrolled(3, [&](Value i) { total(i) = total(i) + next(i); });
  }
  return {k.let("sum_0", total(0)), k.let("sum_1", total(1)), k.let("sum_2", total(2))};
}

}  // namespace tessera::kernels::engram
