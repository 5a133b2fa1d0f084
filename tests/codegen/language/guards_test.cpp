// Undefined elements and unusual bounds: fragments that are written in another order, tiles' results as buffers,
// loops whose bounds reach the ends of i32.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Arg;
using dsl::Axis;
using dsl::Builder;
using dsl::Ref;
using dsl::Tile;
using dsl::Value;
using test::HostTensor;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr int64_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();

}  // namespace

TEST_CASE("a fragment that a loop writes whole in another order needs no fill before",
          "[language]") {
  Builder k("other_order");
  auto x = k.input("x", kI32, {8, 64});
  auto y = k.output("y", kI32, {8, 64});
  auto z = k.output("z", kI32, {64, 8});
  k.launch({1}, {.threads = 64});
  auto t = k.fragment(kI32, {8, 64}, "t");
  k.parallel({8, 64}, [&](Value r, Value c) { t(r, 63 - c) = x(r, c); });
  k.copy(t, y);
  auto u = k.fragment(kI32, {64, 8}, "u");
  k.parallel({8, 64}, [&](Value r, Value c) {
    const Value place = k.let("place", (c * 5 + 3) % 64);
    u(place, 7 - r) = x(r, c);
  });
  k.copy(u, z);
  const HostTensor in = test::iota(kI32, {8, 64});
  const HostTensor reversed(kI32, {8, 64}), turned(kI32, {64, 8});
  test::run_kernel(k.finish(), {&in, &reversed, &turned});
  bool same = true;
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t c = 0; c < 64; ++c) {
      const double value = static_cast<double>(r * 64 + c);
      same = same && reversed.value(r * 64 + 63 - c) == value;
      same = same && turned.value((c * 5 + 3) % 64 * 8 + 7 - r) == value;
    }
  }
  CHECK(same);
}

TEST_CASE("a fragment of which a loop leaves elements out is still told to be undefined",
          "[language]") {
  Builder k("left_out");
  auto x = k.input("x", kI32, {64});
  auto y = k.output("y", kI32, {64});
  k.launch({1}, {.threads = 64});
  auto t = k.fragment(kI32, {64}, "t");
  k.parallel({63}, [&](Value c) { t(63 - c) = x(c); });
  k.copy(t, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor in = test::iota(kI32, {64});
  const HostTensor out(kI32, {64});
  const std::string text = test::error_of([&] { test::run_kernel(kernel, {&in, &out}); });
  CAPTURE(text);
  CHECK(text.find("[UNINITIALISED]") != std::string::npos);
}

TEST_CASE("the result of argmax and of reductions is a buffer of the shape that the page says",
          "[language]") {
  Builder k("best_of_row");
  auto x = k.input("x", kF32, {4, 64});
  auto y = k.output("y", kF32, {4, 3});
  k.launch({1}, {.threads = 64});
  auto row = k.fragment(kF32, {4, 64}, "row");
  k.copy(x, row);
  auto [best, where] = k.argmax(Tile(row), Axis(1));
  const Tile sums = k.reduce_sum(Tile(row), Axis(1));
  CHECK(best.shape() == std::vector<int64_t>{4, 1});
  const Ref value = best.ref(), place = where.ref(), sum = sums.ref();
  k.parallel({4, 1}, [&](Value i, Value j) {
    y(i, 0) = value(i, j);
    y(i, 1) = f32(place(i, 0));
    y(i, 2) = sum(i, 0);
  });
  CHECK(test::error_of([&] {
          value(0, 0, 0);
        }).find("'reduce_max of row' is indexed with too many values [RANK]") != std::string::npos);
  HostTensor in(kF32, {4, 64});
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, static_cast<double>(i * 37 % 101));
  const HostTensor out(kF32, {4, 3});
  test::run_kernel(k.finish(), {&in, &out});
  for (int64_t r = 0; r < 4; ++r) {
    double best_value = -1, sum_of_row = 0;
    int64_t best_place = 0;
    for (int64_t c = 0; c < 64; ++c) {
      const double v = in.value(r * 64 + c);
      sum_of_row += v;
      if (v <= best_value) continue;
      best_value = v;
      best_place = c;
    }
    CHECK(out.value(r * 3) == best_value);
    CHECK(out.value(r * 3 + 1) == static_cast<double>(best_place));
    CHECK(out.value(r * 3 + 2) == sum_of_row);
  }
}

namespace {

/// range(begin, end, step) of Python.
struct Bounds {
  int64_t begin, end, step;
};
std::vector<int64_t> range(const Bounds& b) {
  std::vector<int64_t> result;
  for (int64_t i = b.begin; b.step > 0 ? i < b.end : i > b.end; i += b.step) result.push_back(i);
  return result;
}

const std::vector<Bounds> kBounds = {{kHighest - 5, kHighest, 3},
                                     {kHighest - 2, kHighest, 1},
                                     {kHighest - 10, kHighest, 1 << 30},
                                     {kLowest, kLowest + 3, 1},
                                     {kLowest, kHighest, kHighest},
                                     {kHighest, kLowest, -(1 << 30)},
                                     {kLowest + 2, kLowest, -1},
                                     {kHighest, kLowest, kLowest},
                                     {kHighest, kLowest, 1},
                                     {kLowest, kHighest, -1},
                                     {5, 5, 1},
                                     {7, -7, 2},
                                     {-7, 8, 5},
                                     {8, -7, -5},
                                     {kHighest - 1, kHighest, kHighest}};

}  // namespace

TEST_CASE("loops whose bounds reach the ends of i32 have the rounds of Python's range",
          "[language]") {
  const auto cases = static_cast<int64_t>(kBounds.size());
  Builder k("ends");
  auto bounds = k.input("bounds", kI32, {cases, 3});
  auto y = k.output("y", kI32, {3, cases, 8});  // a count, and the indices
  k.launch({1}, {.threads = 32});
  k.parallel({3, cases, 8}, [&](Value i, Value j, Value l) { y(i, j, l) = 0; });
  k.sync();
  k.if_(k.thread() == 0, [&] {
    for (int64_t number = 0; number < cases; ++number) {
      const Bounds& b = kBounds[static_cast<size_t>(number)];
      const auto noted = [&](int64_t kind) {
        return [&k, y, kind, number](const Value& i) {
          const Value count = k.let("count", y(kind, number, 0) + 1);
          y(kind, number, 0) = count;
          y(kind, number, min(count, 7)) = i;
        };
      };
      const Value begin = bounds(number, 0), end = bounds(number, 1), step = bounds(number, 2);
      k.serial(b.begin, b.end, noted(0), b.step);
      k.serial(begin, end, noted(1), b.step);
      k.serial(begin, end, noted(2), step);
    }
  });
  HostTensor in(kI32, {cases, 3});
  for (int64_t i = 0; i < cases; ++i) {
    const Bounds& b = kBounds[static_cast<size_t>(i)];
    in.set_value(i * 3, static_cast<double>(b.begin));
    in.set_value(i * 3 + 1, static_cast<double>(b.end));
    in.set_value(i * 3 + 2, static_cast<double>(b.step));
  }
  const HostTensor out(kI32, {3, cases, 8});
  test::run_kernel(k.finish(), {&in, &out});
  for (int64_t i = 0; i < 3 * cases; ++i) {
    const Bounds& b = kBounds[static_cast<size_t>(i % cases)];
    CAPTURE(i / cases, b.begin, b.end, b.step);
    const std::vector<int64_t> want = range(b);
    std::vector<int64_t> got;
    for (int64_t n = 1; n <= std::min<int64_t>(static_cast<int64_t>(out.value(i * 8)), 7); ++n) {
      got.push_back(static_cast<int64_t>(out.value(i * 8 + n)));
    }
    CHECK(out.value(i * 8) == static_cast<double>(want.size()));
    CHECK(got == want);
  }
}

TEST_CASE("a loop by threads up to the end of i32 ends there, rolled or not", "[language]") {
  Builder k("strided_ends");
  auto first = k.input("first", kI32, {1});
  auto y = k.output("y", kI32, {2, 64});  // rounds of each thread
  k.launch({1}, {.threads = 64});
  auto rounds = k.var(kI32, 0, "rounds"), rolled = k.var(kI32, 0, "rolled");
  const Value begin = k.let("begin", first(0) + k.thread()), end = k.let("end", first(0) + 100);
  k.serial(
      begin, end, [&](Value) { rounds += 1; }, 64);
  k.rolled(
      begin, end, [&](Value) { rolled += 1; }, 64);
  y(0, k.thread()) = rounds;
  y(1, k.thread()) = rolled;
  const ir::Kernel kernel = k.finish();
  CHECK(test::count(test::cuda_text(kernel), "#pragma unroll 1\n") == 1);
  HostTensor in(kI32, {1});
  in.set_value(0, static_cast<double>(kHighest - 100));
  const HostTensor out(kI32, {2, 64});
  test::run_kernel(kernel, {&in, &out});
  for (int64_t thread = 0; thread < 64; ++thread) {
    CAPTURE(thread);
    CHECK(out.value(thread) == (thread < 36 ? 2 : 1));
    CHECK(out.value(64 + thread) == (thread < 36 ? 2 : 1));
  }
}

TEST_CASE("loops of i64 whose bounds reach the end of i64 have the rounds of Python's range",
          "[language]") {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  Builder k("wide_ends");
  auto y = k.output("y", kI32, {2});
  k.launch({1}, {.threads = 32});
  auto rounds = k.var(kI32, 0, "rounds");
  const Value end = dsl::cast(DType::i64, kLast);
  k.serial(
      end - 10, end, [&](Value) { rounds += 1; }, 7);
  k.if_(k.thread() == 0, [&] { y(0) = rounds; });
  k.serial(
      end - 10, end, [&](Value) { rounds += 1; }, kLast);
  k.if_(k.thread() == 0, [&] { y(1) = rounds; });
  const HostTensor out(kI32, {2});
  test::run_kernel(k.finish(), {&out});
  CHECK(out.value(0) == 2);
  CHECK(out.value(1) == 3);
}

TEST_CASE("only loops that may step past the end of their type are told to stop there",
          "[language]") {
  using Body = std::function<void(Builder&, const Value& n, const Value& end, const Ref& y)>;
  const auto stops = [](const Body& body) {
    Builder k("steps");
    auto n = k.dim("n");
    auto ends = k.input("ends", kI32, {1});
    auto y = k.output("y", kI32, {n});
    k.launch({k.device_blocks()}, {.threads = 64});
    body(k, n, k.let("end", ends(0)), y);
    return test::count(test::cuda_text(k.finish()), "= next_index(");
  };
  CHECK(stops([](Builder& k, const Value& n, const Value&, const Ref& y) {
          k.serial(
              k.thread(), n, [&](Value i) { y(i) = 1; }, 64);
        }) == 0);
  CHECK(stops([](Builder& k, const Value& n, const Value&, const Ref& y) {
          k.persistent({n}, [&](Value tile) { y(tile) = 1; });
        }) == 0);
  CHECK(stops([](Builder& k, const Value& n, const Value&, const Ref& y) {
          k.persistent({n, n}, [&](Value tile, Value) { y(tile) = 1; });
        }) == 0);
  CHECK(stops([](Builder& k, const Value&, const Value& end, const Ref& y) {
          k.serial(
              k.thread(), end, [&](Value i) { y(i) = 1; }, 64);
        }) == 1);
  CHECK(stops([](Builder& k, const Value&, const Value& end, const Ref& y) {
          k.serial(0, end, [&](Value i) { y(i) = 1; });
        }) == 0);
}

TEST_CASE("a pipelined loop whose bounds reach the ends of i32 has the rounds of Python's range",
          "[language]") {
  const std::vector<Bounds> all = {{kHighest - 3, kHighest, 1},
                                   {kLowest, kLowest + 3, 1},
                                   {kHighest, kLowest, 1},
                                   {kHighest, kHighest - 1, 1},
                                   {-2, 3, 1},
                                   {4, -4, 1}};
  const auto cases = static_cast<int64_t>(all.size());
  Builder k("pipelined_ends");
  auto x = k.input("x", kI32, {8, 32});
  auto y = k.output("y", kI32, {cases, 32});
  k.launch({1}, {.threads = 32});
  for (int64_t number = 0; number < cases; ++number) {
    const Bounds& b = all[static_cast<size_t>(number)];
    auto tile = k.shared(kI32, {32}, "tile");
    auto sum = k.fragment(kI32, {32}, "sum");
    k.fill(sum, 0);
    k.pipelined(b.begin, b.end, 3, [&](Value i) {
      k.copy(x.tile({i - b.begin, 0}, {1, 32}), tile);
      k.parallel({32}, [&](Value c) { sum(c) = sum(c) * 10 + tile(c) + 1; });
    });
    k.copy(sum, y.tile({number, 0}, {1, 32}));
  }
  HostTensor in(kI32, {8, 32});
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, static_cast<double>(i / 32));
  const HostTensor out(kI32, {cases, 32});
  test::run_kernel(k.finish(), {&in, &out});
  for (int64_t number = 0; number < cases; ++number) {
    int64_t want = 0, round = 0;
    for (size_t n = 0; n < range(all[static_cast<size_t>(number)]).size(); ++n) {
      want = want * 10 + ++round;
    }
    CAPTURE(number);
    CHECK(out.value(number * 32) == static_cast<double>(want));
    CHECK(out.value(number * 32 + 31) == static_cast<double>(want));
  }
}

TEST_CASE("copies go ahead across a loop whose bounds reach an end of i32", "[language]") {
  const std::vector<Bounds> all = {
      {kLowest, kLowest + 2, 1 << 30}, {kLowest, kLowest + 4, 3}, {kHighest - 4, kHighest, 3}};
  for (const Bounds& b : all) {
    CAPTURE(b.begin, b.end, b.step);
    Builder k("across_ends");
    auto x = k.input("x", kI32, {8, 128});
    auto y = k.output("y", kI32, {8, 32});
    k.launch({1}, {.threads = 32});
    k.parallel({8, 32}, [&](Value i, Value j) { y(i, j) = 0; });
    k.sync();
    auto tile = k.shared(kI32, {1, 32}, "tile");
    k.serial(
        b.begin, b.end,
        [&](Value i) {
          auto sum = k.fragment(kI32, {1, 32}, "sum");
          const Value row = k.let("row", i - b.begin);
          k.fill(sum, 0);
          k.pipelined(0, 4, {.stages = 3, .across = true}, [&](Value step) {
            k.copy(x.tile({row, step * 32}, {1, 32}), tile);
            k.parallel({1, 32}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
          });
          k.copy(sum, y.tile({row, 0}, {1, 32}));
        },
        b.step);
    const HostTensor in = test::iota(kI32, {8, 128});
    const HostTensor out(kI32, {8, 32});
    test::run_kernel(k.finish(), {&in, &out});
    const std::vector<int64_t> rows = range({0, b.end - b.begin, b.step});
    for (int64_t row = 0; row < 8; ++row) {
      const bool is_there = std::find(rows.begin(), rows.end(), row) != rows.end();
      CHECK(out.value(row * 32) == (is_there ? 4.0 * static_cast<double>(row) * 128 + 192 : 0));
    }
  }
}

namespace {

/// Returns the error of a kernel of 64 threads that sums x f32 [8, 64].
std::string refusal(const std::function<void(Builder&, const Ref& x)>& body) {
  return test::error_of([&] {
    Builder k("sums");
    auto x = k.input("x", kF32, {8, 64});
    auto y = k.output("y", kF32, {8});
    k.launch({1}, {.threads = 64});
    body(k, x);
    k.if_(k.thread() == 0, [&] { y(0) = 1.0f; });
    codegen::lower(k.finish());
  });
}

}  // namespace

TEST_CASE("a sum into one element of a fragment by all iterations of a parallel loop is refused",
          "[language]") {
  const auto starts = [](const std::string& text, const std::string& element,
                         const std::string& iterations) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: sums: all iterations of a parallel loop change one element, " +
                           element +
                           " [ONE_ELEMENT]\n"
                           "  expected  an element of its own for each iteration\n"
                           "  got       one for " +
                           iterations +
                           "\n"
                           "  hint      use k.reduce_sum (_max, _min) of a fragment or k.reducer\n"
                           "  at        "));
    CHECK(text.find("guards_test.cpp") != std::string::npos);
  };
  starts(refusal([](Builder& k, const Ref& x) {
           auto sum = k.fragment(kF32, {1}, "sum");
           k.fill(sum, 0.0f);
           k.parallel({1, 64}, [&](Value r, Value c) { sum(r) += x(r, c); });
         }),
         "sum[i]", "j = 0 .. 63");
  starts(refusal([](Builder& k, const Ref& x) {
           auto sum = k.fragment(kF32, {1}, "sum");
           k.fill(sum, 0.0f);
           k.parallel({64}, [&](Value c) { sum(0) = sum(0) + x(0, c); });
         }),
         "sum[0]", "i = 0 .. 63");
  starts(refusal([](Builder& k, const Ref& x) {
           auto row = k.fragment(kF32, {8, 64}, "row"), best = k.fragment(kF32, {8}, "best");
           k.copy(x, row);
           k.fill(best, 0.0f);
           k.parallel({8, 64}, [&](Value r, Value c) {
             const Value old = k.let("old", best(r));
             best(r) = max(old, row(r, c));
           });
         }),
         "best[i]", "j = 0 .. 63");
  starts(refusal([](Builder& k, const Ref& x) {
           auto sum = k.fragment(kF32, {8}, "sum");
           k.fill(sum, 0.0f);
           k.parallel({8, 64}, [&](Value r, Value c) { k.if_(r < 7, [&] { sum(r) += x(r, c); }); });
         }),
         "sum[i]", "j = 0 .. 63");
}

namespace {

/// Returns the error of sum(r) += row(r, c) over {8, 64} under a condition, all of them fragments.
std::string refusal_under(const std::function<void(Builder&, const Ref& row, Value r, Value c,
                                                   std::function<void()>)>& condition) {
  return refusal([&](Builder& k, const Ref& x) {
    auto row = k.fragment(kF32, {8, 64}, "row"), sum = k.fragment(kF32, {8}, "sum");
    k.copy(x, row);
    k.fill(sum, 0.0f);
    k.parallel({8, 64},
               [&](Value r, Value c) { condition(k, row, r, c, [&] { sum(r) += row(r, c); }); });
  });
}

}  // namespace

TEST_CASE("a sum into one element of a fragment under a condition on the other index is refused",
          "[language]") {
  using Sum = std::function<void()>;
  const auto is_refused = [](const auto& condition) {
    const std::string text = refusal_under(condition);
    CAPTURE(text);
    CHECK(text.starts_with(
        "tessera: sums: several iterations of a parallel loop change one element, sum[i] "
        "[ONE_ELEMENT]\n"
        "  expected  an element of its own for each iteration\n"
        "  got       one for j = 0 .. 63, where the condition holds\n"));
  };
  is_refused([](Builder& k, const Ref&, Value, Value c, const Sum& sum) { k.if_(c < 40, sum); });
  is_refused([](Builder& k, const Ref& row, Value r, Value c, const Sum& sum) {
    k.if_(row(r, c) > 0.0f, sum);
  });
  is_refused([](Builder& k, const Ref&, Value, Value c, const Sum& sum) {
    k.if_(c % 2 == 0, sum);  // holds for 32 of them
  });
  is_refused([](Builder& k, const Ref&, Value, Value c, const Sum& sum) {
    k.if_else(
        c == 0, [] {}, sum);  // for all but one
  });
  is_refused([](Builder& k, const Ref&, Value, Value c, const Sum& sum) { k.if_(c != 3, sum); });
  is_refused(
      [](Builder& k, const Ref&, Value, Value c, const Sum& sum) { k.if_(c == 3 || c == 4, sum); });
  is_refused([](Builder& k, const Ref&, Value, Value c, const Sum& sum) {
    k.serial(0, 64, [&](Value s) { k.if_(c == s, sum); });  // each at its own turn
  });
}

TEST_CASE(
    "a sum into an element of a fragment by the one iteration that a condition chooses is taken",
    "[language]") {
  using Sum = std::function<void()>;
  const auto is_taken = [](const auto& condition) { CHECK(refusal_under(condition).empty()); };
  is_taken([](Builder& k, const Ref&, Value, Value c, const Sum& sum) { k.if_(c == 3, sum); });
  is_taken([](Builder& k, const Ref&, Value r, Value c, const Sum& sum) {
    k.if_(r < 7 && c + 1 == 3 * r, sum);
  });
  is_taken([](Builder& k, const Ref&, Value r, Value c, const Sum& sum) {
    const Value is_diagonal = k.let("is_diagonal", c - r == 0);
    k.if_else(
        !is_diagonal, [] {}, sum);
  });
}

TEST_CASE("an element that a branch sets is not set for the sum after it", "[language]") {
  CHECK(refusal([](Builder& k, const Ref& x) {
          auto sum = k.fragment(kF32, {8}, "sum");
          k.fill(sum, 0.0f);
          k.parallel({8, 64}, [&](Value r, Value c) {
            k.if_(c == 0, [&] { sum(r) = 0.0f; });
            sum(r) += x(r, c);
          });
        }).find("change one element, sum[i] [ONE_ELEMENT]") != std::string::npos);
}

TEST_CASE("a warp's reduction inside a parallel loop, whose lanes the compiler chooses, is refused",
          "[language]") {
  Builder k("partners");
  auto x = k.input("x", kF32, {64});
  auto y = k.output("y", kF32, {64});
  k.launch({1}, {.threads = 64});
  const std::string text =
      test::error_of([&] { k.parallel({64}, [&](Value c) { y(c) = k.warp_sum(x(c)); }); });
  CHECK(text.find("a shuffle, vote or reduction of a warp inside a parallel loop "
                  "[NESTED_PARALLEL]") != std::string::npos);
}

}  // namespace tessera
