#include "codegen/analysis/int_range.h"

#include "tests/support/catch.h"
#include "tests/support/program_builder.h"

namespace tessera::codegen {
namespace {

using ir::Expr;
using ir::Op;
using test::number;
using test::ProgramBuilder;

/// Ranges in a block of 128 threads; a Let is a variable like any other.
struct Ranges {
  ProgramBuilder k{"sample", 128};
  IntRanges ranges{[](const ir::Var&) { return Expr(); }, 128};

  void check(const Expr& e, int64_t low, int64_t high) {
    CAPTURE(to_string(e));
    const Interval range = ranges.of(e);
    CHECK(range.low == low);
    CHECK(range.high == high);
  }
};

constexpr int64_t kMin = -(int64_t{1} << 31), kMax = (int64_t{1} << 31) - 1;

}  // namespace

TEST_CASE("ranges of indices and what comes of them", "[codegen]") {
  Ranges r;
  const Expr t = r.k.thread(), any = r.k.scalar("any", DType::i32);
  r.check(t, 0, 127);
  r.check(any, kMin, kMax);
  r.check(r.k.block("x", 0), 0, kMax - 1);
  r.check(r.k.block("y", 1), 0, 65534);
  r.check(t * number(-3) + number(5), -376, 5);
  r.check(number(7) - t, -120, 7);
  r.check(t / number(32), 0, 3);
  r.check((t - number(64)) / number(10), -6, 6);
  r.check(t % number(32), 0, 31);
  r.check((t - number(3)) % number(32), -3, 31);
  r.check(t % number(0), kMin, kMax);
  r.check(any / number(4), -(1 << 29), (1 << 29) - 1);  // 2^31 - 1 is cut off
  r.check(ir::binary(Op::min, any, number(9)), kMin, 9);
  r.check(ir::binary(Op::max, any, number(9)), 9, kMax);
  r.check(ir::select(any < t, t, number(-1)), -1, 127);
  r.check(any < t, 0, 1);
  r.check(ir::binary(Op::bit_and, t, number(31)), 0, 31);
  r.check(ir::binary(Op::bit_xor, t, number(31)), 0, 127);
  r.check(ir::unary(Op::neg, t), -127, 0);
  r.check(ir::cast(DType::i64, any) * ir::constant(DType::i64, 2), 2 * kMin, 2 * kMax);
  r.check(ir::cast(DType::u8, t), 0, 127);
  r.check(ir::cast(DType::u8, t * number(3)), 0, 255);
  r.check(ir::cast(DType::i32, r.k.scalar("f", DType::f32)), kMin, kMax);
}

TEST_CASE("what may have wrapped has any value of its type", "[codegen]") {
  Ranges r;
  const Expr t = r.k.thread();
  const Expr fits = t * number(16909320), wraps = t * number(16909321);  // 127 of them: 2^31 + 8
  CHECK(r.ranges.may_wrap(wraps));
  r.check(wraps, kMin, kMax);
  r.check(wraps / number(2), -(1 << 30), (1 << 30) - 1);
  CHECK(int64_t{127} * 16909320 == kMax + 1 - 8);
  CHECK_FALSE(r.ranges.may_wrap(fits));
  CHECK_FALSE(r.ranges.may_wrap(t - number(1)));
  CHECK(r.ranges.may_wrap(ir::unary(Op::neg, r.k.scalar("any", DType::i32))));
}

}  // namespace tessera::codegen
