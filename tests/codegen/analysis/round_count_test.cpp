// The rounds of loops, up to the ends of i64.

#include "codegen/analysis/round_count.h"

#include <limits>

#include "tests/support/catch.h"

namespace tessera::codegen {

TEST_CASE("a loop that ends at the largest i64 has its rounds, and not none", "[codegen][loops]") {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK(round_count(0, 10, 3) == 4);
  CHECK(round_count(0, 9, 3) == 3);
  CHECK(round_count(5, 5, 1) == 0);
  CHECK(round_count(7, 5, 1) == 0);
  CHECK(round_count(0, kMost, 10) == kMost / 10 + 1);
  CHECK(round_count(kMost - 1, kMost, kMost) == 1);
  CHECK(round_count(kLeast, kMost, kMost) == 3);
  CHECK(round_count(kLeast, kMost, 1) == kMost);  // more than an i64 holds
}

}  // namespace tessera::codegen
