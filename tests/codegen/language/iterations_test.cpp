// Tile programs about the iterations of a parallel loop: what happens once where several threads run
// one iteration, and what one iteration may see of another.

#include <atomic>
#include <cstring>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::ExternFunction;
using dsl::Value;

TEST_CASE("a loop of fewer iterations than threads updates global memory in place", "[language]") {
  // All threads hold what the loop leaves in f: none of them may read x after the store.
  Builder k("inplace_copies");
  auto x = k.output("x", DType::f32, {32});
  auto y = k.output("y", DType::f32, {2, 32});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::f32, {32}, "f");
  auto g = k.fragment(DType::f32, {2, 32}, "g");
  k.parallel({32}, [&](Value i) {
    f(i) = x(i);
    x(i) = f(i) + 100.0f;
  });
  k.parallel({2, 32}, [&](Value j, Value i) { g(j, i) = f(i); });
  k.copy(g, y);
  const HostTensor in_place = iota(DType::f32, {32});
  const HostTensor result(DType::f32, {2, 32});
  run_kernel(k.finish(), {&in_place, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 100; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 32; }));
}

TEST_CASE("a column scan in place leaves its sums in every copy of a fragment", "[language]") {
  Builder k("inplace_scan");
  auto x = k.output("x", DType::i32, {4, 32});
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 128});
  auto sum = k.fragment(DType::i32, {32}, "sum");
  auto copies = k.fragment(DType::i32, {128}, "copies");
  k.fill(sum, 0);
  k.parallel({32}, [&](Value i) {
    k.serial(0, 4, [&](Value row) {
      sum(i) += x(row, i);
      x(row, i) = sum(i);
    });
  });
  k.parallel({128}, [&](Value i) { copies(i) = sum(i % 32); });
  k.copy(copies, y);
  const HostTensor in_place = iota(DType::i32, {4, 32});
  const HostTensor result(DType::i32, {128});
  run_kernel(k.finish(), {&in_place, &result});
  const auto sum_to = [](int64_t row, int64_t column) {
    return 32 * row * (row + 1) / 2 + (row + 1) * column;
  };
  CHECK_THAT(in_place, HasValues([&](int64_t i) { return sum_to(i / 32, i % 32); }));
  CHECK_THAT(result, HasValues([&](int64_t i) { return sum_to(3, i % 32); }));
}

TEST_CASE("row statistics that lanes share are updated from a tensor in place", "[language]") {
  // The lanes of a row hold copies of m after the reduction.
  Builder k("inplace_statistics");
  auto x = k.input("x", DType::i32, {32, 32});
  auto z = k.output("z", DType::i32, {32});
  auto y = k.output("y", DType::i32, {32, 32});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {32, 32}, "f");
  auto m = k.fragment(DType::i32, {32}, "m");
  k.copy(x, f);
  k.reduce_max(f, m, dsl::Axis(1));
  k.parallel({32}, [&](Value i) {
    m(i) = m(i) + z(i);
    z(i) = m(i);
  });
  k.parallel({32, 32}, [&](Value i, Value j) { f(i, j) = m(i); });
  k.copy(f, y);
  const HostTensor source = iota(DType::i32, {32, 32});
  const HostTensor in_place = iota(DType::i32, {32});
  const HostTensor result(DType::i32, {32, 32});
  run_kernel(k.finish(), {&source, &in_place, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return 33 * i + 31; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return 33 * (i / 32) + 31; }));
}

TEST_CASE("a reducer of an in-place loop has one value in all threads", "[language]") {
  Builder k("inplace_reducer");
  auto x = k.output("x", DType::i32, {32});
  auto y = k.output("y", DType::i32, {64});
  auto z = k.output("z", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {32}, "f");
  auto g = k.fragment(DType::i32, {64}, "g");
  auto sum = k.reducer(dsl::ReduceOp::sum, DType::i32);
  sum.init();
  k.parallel({32}, [&](Value i) {
    f(i) = x(i);
    x(i) = f(i) + 1;
    sum.update(f(i));
  });
  const Value total = sum.finalize();
  y(k.thread()) = total;
  k.parallel({64}, [&](Value i) { g(i) = f(i % 32); });
  k.copy(g, z);
  const HostTensor in_place = iota(DType::i32, {32});
  const HostTensor totals(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&in_place, &totals, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 1; }));
  CHECK_THAT(totals, HasValues([](int64_t) { return 496; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 32; }));
}

TEST_CASE("an in-place loop with registers of its own does not trap", "[language]") {
  const HostTensor in_place = iota(DType::f32, {32});
  SECTION("a variable") {
    Builder k("inplace_var");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    k.parallel({32}, [&](Value i) {
      auto v = k.var(DType::f32, x(i), "v");
      x(i) = v + 1.0f;
    });
    run_kernel(k.finish(), {&in_place});
  }
  SECTION("a vectorized loop through registers") {
    Builder k("inplace_vector");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    k.parallel({8}, [&](Value i) {
      auto v = k.local(DType::f32, {4}, "v");
      k.vectorized(4, [&](Value lane) { v(lane) = x(i * 4 + lane); });
      k.vectorized(4, [&](Value lane) { x(i * 4 + lane) = v(lane) + 1.0f; });
    });
    run_kernel(k.finish(), {&in_place});
  }
  SECTION("a fragment that nothing else uses") {
    Builder k("inplace_own_fragment");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(DType::f32, {32}, "f");
    k.parallel({32}, [&](Value i) {
      f(i) = x(i);
      x(i) = f(i) + 1.0f;
    });
    run_kernel(k.finish(), {&in_place});
  }
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 1; }));
}

TEST_CASE("an impure function is called once per iteration in fewer iterations than threads",
          "[language]") {
  static std::atomic<int> calls;
  ExternFunction next;
  next.name = "next_ticket";
  next.source = "__device__ int next_ticket(int x) { return x + 1; }\n";
  next.result = DType::i32;
  next.params = {DType::i32};
  next.pure = false;
  next.model = [](void* result, const void* const* args) {
    ++calls;
    int x = 0;
    std::memcpy(&x, args[0], sizeof x);
    ++x;
    std::memcpy(result, &x, sizeof x);
  };
  const bool keeps_result = GENERATE(false, true);
  CAPTURE(keeps_result);
  Builder k("impure_calls");
  auto y = k.output("y", DType::i32, {keeps_result ? 64 : 4});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {4}, "f");
  auto g = k.fragment(DType::i32, {64}, "g");
  k.parallel({4}, [&](Value i) {
    const Value ticket = k.call(next, {i});
    if (keeps_result) {
      f(i) = ticket;
    } else {
      y(i) = ticket;
    }
  });
  if (keeps_result) {
    k.parallel({64}, [&](Value i) { g(i) = f(i % 4); });
    k.copy(g, y);
  }
  const HostTensor result(DType::i32, {keeps_result ? 64 : 4});
  calls = 0;
  run_kernel(k.finish(), {&result});
  CHECK(calls == 4);
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 4 + 1; }));
}
