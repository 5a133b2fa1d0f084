#include "codegen/analysis/interval.h"

#include <algorithm>
#include <array>

#include "dsl/ir/integer.h"

namespace tessera::codegen {
namespace {

using ir::Op;
using Bound = std::optional<int64_t>;

/// op(x, y); nothing if 64 bits overflow or a bound is missing.
Bound exact(Op op, Bound x, Bound y) {
  if (!x || !y) return std::nullopt;
  return ir::compute_exactly(op, DType::i64, *x, *y);
}

Interval product(const Interval& a, const Interval& b) {
  if (is_natural(a) && is_natural(b)) {
    return {exact(Op::mul, a.low, b.low), exact(Op::mul, a.high, b.high)};
  }
  const std::array<Bound, 4> corners = {exact(Op::mul, a.low, b.low), exact(Op::mul, a.low, b.high),
                                        exact(Op::mul, a.high, b.low),
                                        exact(Op::mul, a.high, b.high)};
  const bool are_known =
      std::all_of(corners.begin(), corners.end(), [](const Bound& c) { return c.has_value(); });
  if (!are_known) return {};
  const auto [low, high] = std::minmax_element(corners.begin(), corners.end());
  return {*low, *high};
}

/// Truncated: a large divisor brings a quotient closer to 0.
Interval quotient(const Interval& a, const Interval& b) {
  if (b.low.value_or(0) < 1) return {};
  const auto toward_zero = [&](int64_t x) { return b.high ? x / *b.high : 0; };
  Interval result;
  if (a.low) result.low = *a.low < 0 ? *a.low / *b.low : toward_zero(*a.low);
  if (a.high) result.high = *a.high < 0 ? toward_zero(*a.high) : *a.high / *b.low;
  return result;
}

/// A remainder has the sign of its dividend.
Interval remainder(const Interval& a, const Interval& b) {
  if (b.low.value_or(0) < 1) return {};
  const Bound most = exact(Op::sub, b.high, 1);
  Interval result;
  result.low = is_natural(a) ? Bound(0) : intersect({a.low, {}}, {exact(Op::sub, 0, most), {}}).low;
  result.high = a.high && *a.high <= 0 ? Bound(0) : intersect({{}, a.high}, {{}, most}).high;
  return result;
}

/// The bound of a bitwise operation on two non-negative numbers: below the next power of two.
Interval bits_of_either(const Interval& a, const Interval& b) {
  if (!is_natural(a) || !is_natural(b) || !a.high || !b.high) return {};
  uint64_t mask = 0;
  while (mask < static_cast<uint64_t>(std::max(*a.high, *b.high))) mask = 2 * mask + 1;
  return {0, static_cast<int64_t>(mask)};
}

/// The minimum of two known bounds.
Bound least(Bound a, Bound b) {
  return a && b ? Bound(std::min(*a, *b)) : std::nullopt;
}
Bound largest(Bound a, Bound b) {
  return a && b ? Bound(std::max(*a, *b)) : std::nullopt;
}

}  // namespace

Interval limits_of(DType type) {
  if (type == DType::boolean) return {0, 1};
  if (type == DType::u64) return {0, std::nullopt};
  const int width = bits(type);
  if (!is_signed(type)) return {0, (int64_t{1} << width) - 1};
  const auto high = static_cast<int64_t>((uint64_t{1} << (width - 1)) - 1);
  return {-high - 1, high};
}

bool contains(const Interval& outer, const Interval& inner) {
  const bool above = !outer.low || (inner.low && *inner.low >= *outer.low);
  const bool below = !outer.high || (inner.high && *inner.high <= *outer.high);
  return above && below;
}

bool fits(const Interval& values, DType type) {
  return values.low && values.high && contains(limits_of(type), values);
}

Interval intersect(const Interval& a, const Interval& b) {
  const auto tighter = [](Bound x, Bound y, const auto& choose) {
    return x && y ? Bound(choose(*x, *y)) : (x ? x : y);
  };
  return {tighter(a.low, b.low, [](int64_t x, int64_t y) { return std::max(x, y); }),
          tighter(a.high, b.high, [](int64_t x, int64_t y) { return std::min(x, y); })};
}

Interval interval_of(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::add:
      return {exact(op, a.low, b.low), exact(op, a.high, b.high)};
    case Op::sub:
      return {exact(op, a.low, b.high), exact(op, a.high, b.low)};
    case Op::neg:
      return {exact(Op::sub, 0, a.high), exact(Op::sub, 0, a.low)};
    case Op::mul:
      return product(a, b);
    case Op::div:
      return quotient(a, b);
    case Op::mod:
      return remainder(a, b);
    case Op::min:
      return {least(a.low, b.low), least(a.high, b.high)};
    case Op::max:
      return {largest(a.low, b.low), largest(a.high, b.high)};
    case Op::select:
      return {least(a.low, b.low), largest(a.high, b.high)};
    case Op::cast:
      return a;
    case Op::bit_and:
      if (!is_natural(a) || !is_natural(b)) return {};
      return {0, intersect({{}, a.high}, {{}, b.high}).high};
    case Op::bit_or:
    case Op::bit_xor:
      return bits_of_either(a, b);
    case Op::shr:
      return is_natural(a) ? Interval{0, a.high} : Interval{};
    case Op::popcount:
    case Op::clz:
    case Op::ffs:
      return {0, 64};
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      return {0, 1};
    default:
      return {};
  }
}

}  // namespace tessera::codegen
