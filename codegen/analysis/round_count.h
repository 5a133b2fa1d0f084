#pragma once
// The number of rounds of a loop with constant bounds, which may be the ends of i64.

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tessera::codegen {

/// The rounds of `for (i = begin; i < end; i += step)`, or the largest i64 if there are more. The step is positive.
///
/// Example: round_count(0, 10, 3) == 4
inline int64_t round_count(int64_t begin, int64_t end, int64_t step) {
  if (begin >= end) return 0;
  const uint64_t span = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  const uint64_t rounds = (span - 1) / static_cast<uint64_t>(step) + 1;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(rounds, kMost));
}

}  // namespace tessera::codegen
