// Tile programs about conditions.

#include <type_traits>

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

static_assert(!std::is_constructible_v<bool, Value>, "a run-time value steers no C++ branch");

TEST_CASE("values combine with and, or and not", "[language]") {
  Builder k("conditions");
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto t = k.let("t", k.thread());
  const Value low = t < 8, odd = t % 2 == 1;
  y(t) = select(low && odd, 1, 0) + select(low || odd, 2, 0) + select(!odd, 4, 0);
  const HostTensor out(DType::i32, {32});
  run_kernel(k.finish(), {&out});
  for (int i = 0; i < 32; ++i) {
    const bool is_low = i < 8, is_odd = i % 2 == 1;
    REQUIRE(out.value(i) ==
            (is_low && is_odd ? 1 : 0) + (is_low || is_odd ? 2 : 0) + (is_odd ? 0 : 4));
  }
}
