// Tile programs about persistent loops, branches and integer division.

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("a persistent loop visits every tile once (R07)", "[language][slow]") {
  const auto [rows, columns] =
      GENERATE(std::pair<int64_t, int64_t>{3, 5}, std::pair<int64_t, int64_t>{4, 7},
               std::pair<int64_t, int64_t>{1, 13}, std::pair<int64_t, int64_t>{5, 1});
  const int64_t group = GENERATE(1, 2, 8);
  CAPTURE(rows, columns, group);
  Builder k("tiles");
  auto m = k.dim("m");
  auto n = k.dim("n");
  auto wave = k.dim("wave");
  auto visits = k.output("visits", DType::i32, {m, n});
  k.input("one_per_block", DType::u8, {wave});
  k.launch({wave}, {.threads = 32});
  k.persistent(
      {m, n},
      [&](Value i, Value j) { k.if_(k.thread() == 0, [&] { k.atomic_add(visits(i, j), 1); }); },
      {.group = group});
  const ir::Kernel kernel = k.finish();
  for (int64_t blocks = 1; blocks <= 20; ++blocks) {
    CAPTURE(blocks);
    const std::vector<double> zeros(static_cast<size_t>(rows * columns), 0);
    const HostTensor out = tensor_of(DType::i32, {rows, columns}, zeros);
    const HostTensor per_block(DType::u8, {blocks});
    run_kernel(kernel, {&out, &per_block});
    REQUIRE(values_of(out) == std::vector<double>(zeros.size(), 1));
  }
}

TEST_CASE("a persistent loop walks rows in order, groups of columns first", "[language]") {
  auto order = [](int64_t group) {
    Builder k("order");
    auto y = k.output("y", DType::i32, {3, 5});
    auto next = k.output("next", DType::i32, {1});
    k.launch({1}, {.threads = 32});
    k.persistent({3, 5},
                 [&](Value i, Value j) {
                   k.if_(k.thread() == 0, [&] { y(i, j) = k.atomic_fetch_add(next(0), 1); });
                 },
                 {.group = group});
    const HostTensor out(DType::i32, {3, 5});
    const HostTensor counter = iota(DType::i32, {1});
    run_kernel(k.finish(), {&out, &counter});
    return values_of(out);
  };
  CHECK(order(1) == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  CHECK(order(2) == std::vector<double>{0, 1, 6, 7, 12, 2, 3, 8, 9, 13, 4, 5, 10, 11, 14});
}

TEST_CASE("blocks share the tiles of narrow groups of columns evenly", "[language]") {
  const int64_t columns = GENERATE(3, 9, 11), blocks = 8, rows = 4;
  Builder k("shares");
  auto visits = k.output("visits", DType::i32, {blocks});
  auto at = k.launch({blocks}, {.threads = 32});
  k.persistent(
      {rows, columns},
      [&](Value, Value) { k.if_(k.thread() == 0, [&] { k.atomic_add(visits(at.x), 1); }); },
      {.group = 8});
  const HostTensor out = tensor_of(DType::i32, {blocks}, std::vector<double>(8, 0));
  run_kernel(k.finish(), {&out});
  CHECK_THAT(out, HasValues([&](int64_t block) {
               return rows * columns / blocks + (block < rows * columns % blocks ? 1 : 0);
             }));
}

TEST_CASE("a persistent loop needs a grid of one extent", "[language]") {
  Builder k("two_axes");
  k.launch({2, 2}, {.threads = 32});
  CHECK(error_of([&] {
          k.persistent({4}, [&](Value) {});
        }).find("a persistent loop needs a grid of one extent") != std::string::npos);
}

TEST_CASE("a persistent loop proves what a grid of tiles proves", "[language]") {
  Builder k("proved");
  auto n = k.dim("n", {.multiple_of = 64});
  auto x = k.input("x", DType::f32, {n, 64});
  auto y = k.output("y", DType::f32, {n, 64});
  auto blocks = k.scalar("blocks", DType::i32);
  k.launch({blocks}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {64, 64}, "tile");
  k.persistent({ceil_div(n, 64)}, [&](Value t) {
    k.copy(x.tile({t * 64, 0}, {64, 64}), tile);
    k.copy(tile, y.tile({t * 64, 0}, {64, 64}));
  });
  CHECK(count(cuda_text(k.finish()), "_or_zero") == 0);
}

TEST_CASE("a variable carries a value through branches and loops (R08)", "[language]") {
  Builder k("carried");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto value = k.var(DType::i32, 0);
  k.if_else(
      k.thread() % 2 == 0, [&] { value = k.thread(); }, [&] { value = 0 - k.thread(); });
  k.serial(0, k.thread() % 5, [&](Value i) { value += i + 1; });
  y(k.thread()) = value;
  const HostTensor out(DType::i32, {64});
  run_kernel(k.finish(), {&out});
  CHECK_THAT(out, HasValues([](int64_t t) {
               const int64_t steps = t % 5;
               return (t % 2 == 0 ? t : -t) + steps * (steps + 1) / 2;
             }));

  Builder b("escaping");
  auto z = b.output("z", DType::i32, {64});
  b.launch({1}, {.threads = 64});
  Value inner;
  b.if_(b.thread() < 3, [&] { inner = b.let("inner", b.thread() * 2); });
  const std::string text = error_of([&] { z(b.thread()) = inner; });
  CHECK(text.find("value 'inner' is used outside the loop or branch") != std::string::npos);
  CHECK(text.find("carry it in a variable") != std::string::npos);
}

TEST_CASE("select guards its loads, a branch does not run them (R09)", "[language]") {
  const HostTensor in = tensor_of(DType::i32, {4}, {10, 11, 12, 13});
  const HostTensor selected(DType::i32, {32});
  const HostTensor branched(DType::i32, {32});
  {
    Builder k("selected");
    auto n = k.dim("n");
    auto x = k.input("x", DType::i32, {n});
    auto y = k.output("y", DType::i32, {32});
    k.launch({1}, {.threads = 32});
    y(k.thread()) = select(k.thread() < 6, x(k.thread()), -1);
    const ir::Kernel kernel = k.finish();
    run_kernel(kernel, {&in, &selected});
    CHECK(count(cuda_text(kernel), "thread < n") == 1);
  }
  {
    // The index in the untaken arm is far outside, and nothing guards it.
    Builder k("branched");
    auto n = k.dim("n");
    auto x = k.input("x", DType::i32, {n});
    auto y = k.output("y", DType::i32, {32});
    k.launch({1}, {.threads = 32});
    k.if_else(
        k.thread() < 4, [&] { y(k.thread()) = x.unchecked()(k.thread() * 1); },
        [&] { y(k.thread()) = -1; });
    run_kernel(k.finish(), {&in, &branched});
  }
  CHECK_THAT(selected, HasValues([](int64_t i) { return i < 4 ? 10 + i : i < 6 ? 0 : -1; }));
  CHECK_THAT(branched, HasValues([](int64_t i) { return i < 4 ? 10 + i : -1; }));
}

TEST_CASE("division towards minus infinity, towards zero and upwards (R10)", "[language]") {
  Builder k("divisions");
  auto y = k.output("y", DType::i32, {6, 32});
  k.launch({1}, {.threads = 32});
  auto t = k.thread();
  auto a = k.let("a", t - 16);
  y(0, t) = floor_div(a, 5);
  y(1, t) = floor_mod(a, 5);
  y(2, t) = floor_div(a, -5);
  y(3, t) = floor_mod(a, k.let("b", select(t % 2 == 0, 7, -3)));
  y(4, t) = a / 5;
  y(5, t) = ceil_div(t, 5);
  const HostTensor out(DType::i32, {6, 32});
  run_kernel(k.finish(), {&out});
  const auto floor_of = [](int64_t n, int64_t d) {
    return std::floor(static_cast<double>(n) / static_cast<double>(d));
  };
  for (int64_t i = 0; i < 32; ++i) {
    const int64_t n = i - 16;
    const int64_t d = i % 2 == 0 ? 7 : -3;
    CAPTURE(n);
    CHECK(out.value(i) == floor_of(n, 5));
    CHECK(out.value(32 + i) == static_cast<double>(n) - 5 * floor_of(n, 5));
    CHECK(out.value(64 + i) == floor_of(n, -5));
    CHECK(out.value(96 + i) == static_cast<double>(n) - static_cast<double>(d) * floor_of(n, d));
    CHECK(out.value(128 + i) == static_cast<double>(n / 5));
    CHECK(out.value(160 + i) == static_cast<double>((i + 4) / 5));
  }
  CHECK(error_of([&] {
          ceil_div(Value(k.thread()), -5);
        }).find("ceil_div by a constant that is not positive") != std::string::npos);
}
