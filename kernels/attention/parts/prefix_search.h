#pragma once
// Finds which of several requests a piece of work belongs to.

#include "dsl/builder.h"

namespace tessera::kernels::attention {

inline constexpr int64_t kRequests = 128;  // whose pieces a block sums together

/// The first of `requests` requests, a power of two, whose sum in `ends`, through it, exceeds `item`; the same in all
/// threads.
inline dsl::Value find_owner(dsl::Builder& k, const dsl::Ref& ends, const dsl::Value& item,
                             int64_t requests = kRequests) {
  auto place = k.var(DType::i32, 0, "owner");
  for (int64_t half = requests / 2; half > 0; half /= 2) {
    dsl::Value now = place;
    place = now + select(ends(now + (half - 1)) <= item, dsl::i32(half), 0);
  }
  return k.uniform(place);
}

/// The sum through the request before `owner`; 0 before the first.
inline dsl::Value sum_before(const dsl::Ref& ends, const dsl::Value& owner) {
  dsl::Value before = ends(max(owner - 1, 0));
  return select(owner > 0, before, 0);
}

}  // namespace tessera::kernels::attention
