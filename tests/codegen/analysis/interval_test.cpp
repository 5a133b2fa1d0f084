// The arithmetic of intervals, against all values of small ones.

#include "codegen/analysis/interval.h"

#include <algorithm>
#include <limits>

#include "dsl/ir/integer.h"
#include "tests/support/catch.h"

namespace tessera::codegen {
namespace {

using ir::Op;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

/// Least and largest x op y; nothing if some x op y has no value.
std::optional<Interval> by_values(Op op, const Interval& a, const Interval& b) {
  Interval result;
  for (int64_t x = *a.low; x <= *a.high; ++x) {
    for (int64_t y = *b.low; y <= *b.high; ++y) {
      std::optional<int64_t> value = ir::compute_exactly(op, DType::i64, x, y);
      if (op == Op::shr && y >= 0) value = x >> y;
      if (!value) return std::nullopt;
      result.low = std::min(result.low.value_or(*value), *value);
      result.high = std::max(result.high.value_or(*value), *value);
    }
  }
  return result;
}

template <class Fn>
void for_each_interval(int64_t low, int64_t high, const Fn& fn) {
  for (int64_t from = low; from <= high; ++from) {
    for (int64_t to = from; to <= high; ++to) fn(Interval{from, to});
  }
}

}  // namespace

TEST_CASE("an interval holds every result, and no end that none reaches", "[interval]") {
  const Op op = GENERATE(Op::add, Op::sub, Op::mul, Op::div, Op::mod, Op::min, Op::max, Op::bit_and,
                         Op::bit_or, Op::bit_xor, Op::shr);
  const bool is_tight = op == Op::add || op == Op::sub || op == Op::mul || op == Op::div ||
                        op == Op::min || op == Op::max;
  bool holds = true, reaches = true;
  for_each_interval(-4, 5, [&](const Interval& a) {
    for_each_interval(-3, 6, [&](const Interval& b) {
      const std::optional<Interval> all = by_values(op, a, b);
      if (!all) return;
      const Interval found = interval_of(op, a, b);
      holds = holds && contains(found, *all);
      const bool divides_by_negative = op == Op::div && *b.low < 1;
      reaches = reaches && (!is_tight || divides_by_negative || found == *all);
    });
  });
  CAPTURE(ir::name(op));
  CHECK(holds);
  CHECK(reaches);
}

TEST_CASE("bounds beyond 64 bits, and those of unknown values, are unknown", "[interval]") {
  CHECK(interval_of(Op::add, {1, kMost}, {1, 1}) == Interval{2, {}});
  CHECK(interval_of(Op::sub, {kLeast, 0}, {1, 2}) == Interval{{}, -1});
  CHECK(interval_of(Op::neg, {kLeast, 3}) == Interval{-3, {}});
  CHECK(interval_of(Op::mul, {-2, kMost}, {2, 2}) == Interval{});
  CHECK(interval_of(Op::mul, {3, {}}, {2, 2}) == Interval{6, {}});
  CHECK(interval_of(Op::add, {{}, 5}, {1, 1}) == Interval{{}, 6});
  CHECK(interval_of(Op::div, {10, {}}, {2, {}}) == Interval{0, {}});
  CHECK(interval_of(Op::div, {-9, 20}, {0, 3}) == Interval{});
  CHECK(interval_of(Op::mod, {{}, 20}, {8, 8}) == Interval{-7, 7});
  CHECK(interval_of(Op::mod, {0, {}}, {1, {}}) == Interval{0, {}});
  CHECK(interval_of(Op::shl, {0, 1}, {0, 1}) == Interval{});
  CHECK(interval_of(Op::bit_xor, {0, kMost}, {0, 1}) == Interval{0, kMost});
  CHECK(interval_of(Op::select, {0, 1}, {-5, {}}) == Interval{-5, {}});
  CHECK(interval_of(Op::lt, {}, {}) == Interval{0, 1});
}

TEST_CASE("a type has the values between its limits", "[interval]") {
  CHECK(limits_of(DType::i32) == Interval{-(int64_t{1} << 31), (int64_t{1} << 31) - 1});
  CHECK(limits_of(DType::u16) == Interval{0, 65535});
  CHECK(limits_of(DType::i64) == Interval{kLeast, kMost});
  CHECK(limits_of(DType::u64) == Interval{0, {}});
  CHECK(limits_of(DType::boolean) == Interval{0, 1});
  CHECK(fits({-128, 127}, DType::i8));
  CHECK_FALSE(fits({-129, 127}, DType::i8));
  CHECK_FALSE(fits({0, {}}, DType::i64));
  CHECK_FALSE(fits({0, {}}, DType::u64));
  CHECK(fits({0, kMost}, DType::u64));
  CHECK_FALSE(fits({-1, 1}, DType::u64));
}

TEST_CASE("an intersection keeps the tighter of two known bounds", "[interval]") {
  CHECK(intersect({0, {}}, {-3, 9}) == Interval{0, 9});
  CHECK(intersect({}, {1, 2}) == Interval{1, 2});
  CHECK(contains({0, {}}, {3, {}}));
  CHECK_FALSE(contains({0, 9}, {3, {}}));
  CHECK_FALSE(contains({0, {}}, {{}, 5}));
  CHECK(contains({}, {}));
}

}  // namespace tessera::codegen
