#pragma once
// Intervals of mathematical integers: the one arithmetic of everything that bounds an integer. What the
// machine does beyond its types is dsl/ir/integer.h's.

#include <cstdint>
#include <optional>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// The integers from `low` to `high`, both included. A bound without a value is unknown, or lies
/// beyond 64 signed bits.
struct Interval {
  std::optional<int64_t> low, high;
  bool operator==(const Interval&) const = default;
};

/// The values of an integer or boolean type: u64 has no upper bound here.
Interval limits_of(DType type);

/// True if every value of `inner` lies in `outer`, as far as the bounds are known.
bool contains(const Interval& outer, const Interval& inner);

/// True if a type is known to have every value. u64: only what is below 2^63.
bool fits(const Interval& values, DType type);

/// True if no value is below 0.
inline bool is_natural(const Interval& values) {
  return values.low.value_or(-1) >= 0;
}

/// The values that lie in both.
Interval intersect(const Interval& a, const Interval& b);

/// All values of op(x, y) with x in `a` and y in `b`, as if integers had no end: of an operation of one
/// argument, x is in `a`; of a select, `a` and `b` are what it chooses between. Nothing is known of
/// operations that are not named in interval.cpp.
///
///   interval_of(Op::mul, {-3, 4}, {0, 10}) == Interval{-30, 40}
Interval interval_of(ir::Op op, const Interval& a, const Interval& b = {});

}  // namespace tessera::codegen
