// Barriers around and inside loops whose number of rounds is known at run time alone.

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("a barrier in a loop that never runs does not order what stands around the loop",
          "[language][barriers]") {
  Builder k("zero_rounds");
  auto n = k.dim("n");
  auto rounds = k.output("rounds", DType::i32, {n});
  auto y = k.output("y", DType::i32, {2, 64});
  k.launch({1}, {.threads = 64});
  const Value t = k.thread();
  auto s = k.shared(DType::i32, {64}, "s");
  auto q = k.shared(DType::i32, {64}, "q");
  s(t) = t;
  y(0, t) = s(63 - t);
  k.serial(1, n, [&](Value i) {
    q(t) = t + i;
    k.if_(t == 0, [&] { rounds(i) = q(63); });
  });
  s(t) = t + 100;  // other threads may still read s above
  y(1, t) = s(t);
  const ir::Kernel kernel = k.finish();
  for (const int64_t extent : {1, 2, 4}) {
    const HostTensor rounds_out(DType::i32, {extent});
    const HostTensor out(DType::i32, {2, 64});
    run_kernel(kernel, {&rounds_out, &out});
    CHECK(out.value(0) == 63);
    CHECK(out.value(64) == 100);
    if (extent > 1) CHECK(rounds_out.value(1) == 64);
  }
}
