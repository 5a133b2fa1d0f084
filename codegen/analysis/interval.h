#pragma once
// Intervals of mathematical integers, used by all analyses that bound integers. dsl/ir/integer.h has
// the machine's arithmetic.

#include <cstdint>
#include <optional>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// The integers from `low` to `high`, both included. A missing bound is unknown or beyond 64 signed
/// bits.
struct Interval {
  std::optional<int64_t> low, high;
  bool operator==(const Interval&) const = default;
};

/// The values of an integer or boolean type. u64 has no upper bound here.
Interval limits_of(DType type);

/// True if `outer` contains every value of `inner`, as far as bounds are known.
bool contains(const Interval& outer, const Interval& inner);

/// True if the type can represent every value. u64: only below 2^63.
bool fits(const Interval& values, DType type);

/// True if no value is negative.
inline bool is_natural(const Interval& values) {
  return values.low.value_or(-1) >= 0;
}

/// The values in both.
Interval intersect(const Interval& a, const Interval& b);

/// The values of op(x, y) for x in `a` and y in `b`, on mathematical integers. An operation of one
/// argument takes x from `a`; a select chooses between `a` and `b`. Operations that interval.cpp does
/// not name have unknown values.
///
///   interval_of(Op::mul, {-3, 4}, {0, 10}) == Interval{-30, 40}
Interval interval_of(ir::Op op, const Interval& a, const Interval& b = {});

}  // namespace tessera::codegen
