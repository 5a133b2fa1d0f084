#pragma once
// The requests of a call of hisparse_swap_in or hisparse_backup on the CPU.

#include <algorithm>
#include <set>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requests before num_reqs.
inline int64_t requests_that_count(const Call& c) {
  if (!c.has("num_reqs")) return c["B"];
  return std::clamp<int64_t>(integer_at(c.given("num_reqs"), 0), 0, c["B"]);
}

/// Requires that each of them has a row of the state tables of its own.
inline void require_states(const Call& c, int64_t requests) {
  std::set<int64_t> seen;
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t q = integer_at(c.given("req"), b);
    c.need(q >= 0 && q < c["Q"] && seen.insert(q).second, "req", out_of_range("req"),
           "each of 0 .. " + std::to_string(c["Q"] - 1) + " at most once",
           std::to_string(q) + " at " + to_string(Dims{b}));
  }
}

}  // namespace tessera::kernels::serving
