// The prover: normal forms, ranges, divisibility and comparisons, each also checked by evaluation.

#include "codegen/analysis/index_form.h"

#include <random>

#include "codegen/analysis/evaluate.h"
#include "tests/support/catch.h"

using namespace tessera;
using codegen::Environment;
using codegen::IndexMath;
using ir::Expr;

namespace {

Expr make_var(const char* name, ir::VarKind kind, int id, Expr upper = {},
              int64_t multiple_of = 1) {
  auto v = std::make_shared<ir::Var>();
  v->name = name;
  v->kind = kind;
  v->id = id;
  v->lower = ir::index(0);
  // A dim is at most what the extents that are made of it leave.
  if (kind == ir::VarKind::dim && !upper) upper = ir::index(int64_t{1} << 26);
  v->upper = std::move(upper);
  v->multiple_of = multiple_of;
  return ir::var(v);
}

Expr c(int64_t value) {
  return ir::index(value);
}

struct Symbols {
  Expr n = make_var("n", ir::VarKind::dim, 0);
  Expr m = make_var("m", ir::VarKind::dim, 1, {}, 64);
  Expr block = make_var("block", ir::VarKind::block, 2, (n + c(7)) / c(8));
  Expr tile_block = make_var("tile_block", ir::VarKind::block, 3, (m + c(63)) / c(64));
  Expr row_block = make_var("row_block", ir::VarKind::block, 4, n);
  Expr thread = make_var("thread", ir::VarKind::thread, 5, c(256));
  Expr s = make_var("s", ir::VarKind::loop, 6, c(4));
  Expr lane = make_var("lane", ir::VarKind::loop, 7, c(8));
};

}  // namespace

TEST_CASE("digits of a mixed-radix number come apart without carries", "[prover]") {
  const Symbols v;
  const IndexMath math;
  auto text = [&](const Expr& e) { return ir::to_string(math.simplify(e)); };
  CHECK(text((v.thread * c(8) + v.lane) / c(8)) == "thread");
  CHECK(text((v.thread * c(8) + v.lane) % c(8)) == "lane");
  CHECK(text((v.thread % c(16) * c(8) + v.lane) / c(128)) == "0");
  CHECK(text(v.thread / c(4) / c(8)) == "thread / 32");
  CHECK(text(v.thread % c(64) % c(16)) == "thread % 16");
  CHECK(text(v.thread % c(64) / c(16)) == "thread / 16 % 4");
  CHECK(text((v.thread * c(8) + v.lane) / c(128)) == "thread / 16");
  CHECK(text(v.thread / c(256)) == "0");
  CHECK(text(v.s * c(1024) + v.thread % c(128) * c(8) - v.s * c(1024)) == "thread % 128 * 8");
}

TEST_CASE("steps of a coarse count are below a finer one", "[prover]") {
  const Symbols v;
  const IndexMath math;
  for (const Expr& extent : {v.n, v.m}) {  // of any size, and a multiple of 64
    const Expr step = make_var("step", ir::VarKind::loop, 8, extent / c(64));
    CHECK(math.less(step * c(2) + c(1), extent / c(32)));
    CHECK_FALSE(math.less(step * c(2) + c(2), extent / c(32)));
    CHECK(math.less(step, extent / c(64)));
    CHECK(math.less(step * c(4) + c(3), extent / c(16)));
    CHECK_FALSE(math.less(step * c(4) + c(4), extent / c(16)));
    CHECK_FALSE(math.less(step * c(3), extent / c(32)));
  }
}

TEST_CASE("a chain of bounds is read once per link: gemm_fp8_grouped took 115 ms to lower",
          "[prover]") {
  const IndexMath math;
  Expr bound = c(1000);
  for (int i = 0; i < 60; ++i) {
    const Expr v = make_var("v", ir::VarKind::loop, 9 + i, bound);
    bound = ir::binary(ir::Op::min, v + c(1), bound) +
            c(1);  // v's own bound is asked for twice, by each of those above
  }
  CHECK(math.less(bound, c(2000)));
}

TEST_CASE("a tile below the count of whole tiles is inside the extent", "[prover]") {
  const Symbols v;
  IndexMath math;
  const Expr column =
      v.s * c(32) + c(96) + v.lane * c(4);  // lane * 4 + 3 is the last of a tile of 32
  CHECK_FALSE(math.less(column + c(3), v.m));
  math.add_fact(v.s + c(3) < v.m / c(32));
  CHECK(math.less(column, v.m));
  CHECK(math.less(column + c(3), v.m));
  CHECK_FALSE(math.less(column + c(4), v.m));
  // Nothing follows for an extent that may be negative: -1 / 32 is 0.
  IndexMath unknown;
  auto shift = std::make_shared<ir::Var>();
  shift->name = "shift";
  shift->id = 8;
  const Expr extent = ir::var(shift);
  unknown.add_fact(v.s < extent / c(32) + c(1));
  CHECK_FALSE(unknown.less(v.s * c(32) - c(1), extent));
}

TEST_CASE("bounds against symbolic extents", "[prover]") {
  const Symbols v;
  IndexMath math;
  CHECK(math.less(v.row_block, v.n));
  CHECK(math.less(v.block * c(8), v.n));
  CHECK_FALSE(math.less(v.block * c(8) + c(1), v.n));
  CHECK(math.less(v.tile_block * c(64) + v.thread % c(64), v.m));
  CHECK_FALSE(math.less(v.tile_block * c(64) + v.thread % c(128), v.m));
  CHECK(math.less(v.thread % c(8) * c(8) + v.lane, c(64)));
  CHECK_FALSE(math.less(v.thread, c(255)));
  CHECK(math.non_negative(v.thread));
  CHECK_FALSE(math.non_negative(v.thread - c(1)));
  math.enter_scope();
  math.add_fact(v.thread + v.block * c(8) < v.n);
  CHECK(math.less(v.block * c(8) + v.thread, v.n));
  CHECK_FALSE(math.less(v.block * c(8) + v.thread + c(1), v.n));
  math.leave_scope();
  CHECK_FALSE(math.less(v.block * c(8) + v.thread, v.n));
}

TEST_CASE("a quotient of a block index is below the extent that the grid multiplies", "[prover]") {
  const Symbols v;
  const IndexMath math;
  const Expr chunked = make_var("chunked", ir::VarKind::block, 10, v.n * c(4));
  CHECK(math.less(chunked / c(4), v.n));
  CHECK_FALSE(math.less(chunked / c(3), v.n));
  CHECK_FALSE(math.less(chunked / c(4) + c(1), v.n));
  CHECK(math.less(chunked / c(2), v.n * c(2)));
  // Two rows per block, four chunks per row: the first of the rows exists.
  const Expr paired = make_var("paired", ir::VarKind::block, 11, (v.n + c(1)) / c(2) * c(4));
  CHECK(math.less(paired / c(4) * c(2), v.n));
  CHECK_FALSE(math.less(paired / c(4) * c(2) + c(1), v.n));
  const Expr whole = make_var("whole", ir::VarKind::block, 12, v.m / c(64) * c(5));
  CHECK(math.less(whole / c(5) * c(64) + v.thread % c(64), v.m));
}

TEST_CASE("quotients by one divisor keep an order that is wide enough", "[prover]") {
  const Symbols v;
  IndexMath math;
  const Expr row = v.thread;
  CHECK_FALSE(math.less(row / c(64), v.m / c(64)));
  math.enter_scope();
  math.add_fact(row < v.m);
  CHECK(math.less(row / c(64), v.m / c(64)));  // m is a multiple of 64
  CHECK(math.less(row / c(32), v.m / c(32)));
  CHECK_FALSE(math.less(row / c(96), v.m / c(96)));
  CHECK(math.less(row / c(96), (v.m + c(95)) / c(96)));
  CHECK_FALSE(math.less(row / c(96), (v.m + c(94)) / c(96)));
  CHECK_FALSE(math.less((row - c(1)) / c(64), v.m / c(64) - c(1)));
  math.leave_scope();
}

TEST_CASE("facts bound differences, quotients and what a branch excludes", "[prover]") {
  const Symbols v;
  IndexMath math;
  const Expr j = v.thread % c(24);
  CHECK_FALSE(math.non_negative(j - c(4)));
  const auto negation = [](const Expr& e) { return ir::unary(ir::Op::logical_not, e); };
  math.enter_scope();
  math.add_fact(negation(j < c(4)));
  CHECK(math.non_negative(j - c(4)));
  CHECK_FALSE(math.non_negative(j - c(5)));
  CHECK_FALSE(math.less(j - c(4), c(4)));
  math.enter_scope();
  math.add_fact(j < c(8));
  CHECK(math.less(j - c(4), c(4)));
  CHECK_FALSE(math.less(j - c(4), c(3)));
  math.leave_scope();
  math.enter_scope();
  math.add_fact(negation(j < c(8)));
  CHECK(math.non_negative((j - c(8)) / c(4)));
  CHECK(math.less((j - c(8)) / c(4), c(4)));
  CHECK(math.non_negative((j - c(8)) % c(4)));
  CHECK(math.less((j - c(8)) % c(4), c(4)));
  CHECK_FALSE(math.non_negative((j - c(9)) / c(4) - c(1)));
  math.leave_scope();
  math.leave_scope();
  CHECK_FALSE(math.non_negative(j - c(4)));
  // A fact counted in steps bounds what is counted in elements.
  const Expr tile = v.s * c(4) + v.lane % c(4) + c(1);
  math.enter_scope();
  math.add_fact(tile < c(16));
  CHECK(math.less(tile * c(64) + v.thread % c(64), c(1024)));
  CHECK_FALSE(math.less(tile * c(64) + v.thread % c(65), c(1024)));
  math.leave_scope();
  // not (a or b) excludes both.
  const Expr at = v.thread - c(2);
  math.enter_scope();
  math.add_fact(negation(ir::binary(ir::Op::logical_or, at < c(0), c(7) < at)));
  CHECK(math.non_negative(at));
  CHECK(math.less(at, c(8)));
  CHECK_FALSE(math.less(at, c(7)));
  math.leave_scope();
}

TEST_CASE("divisibility", "[prover]") {
  const Symbols v;
  const IndexMath math;
  CHECK(math.divisor(v.tile_block * c(64) + v.thread * c(8)) == 8);
  CHECK(math.divisor(v.m * v.thread) == 64);
  CHECK(math.divisor(v.m / c(16)) == 4);
  CHECK(math.divisor(v.thread + c(4)) == 1);
  CHECK(math.divisor(c(0)) == 0);
}

TEST_CASE("a value bound by a let is looked through", "[prover]") {
  const Symbols v;
  IndexMath math;
  auto let = std::make_shared<ir::Var>();
  let->name = "row";
  let->id = 8;
  math.define(let, v.tile_block * c(64) + v.thread / c(4));
  CHECK(math.less(ir::var(let), v.m));
  CHECK(math.non_negative(ir::var(let)));
}

TEST_CASE("what differs in a type or in a float constant is not one value", "[prover]") {
  const Symbols v;
  const IndexMath math;
  auto value = std::make_shared<ir::Var>();
  value->name = "value";
  value->type = DType::f32;
  value->id = 8;
  const auto scaled = [&](double by) {
    return ir::cast(DType::i32, ir::var(value) * ir::float_constant(DType::f32, by));
  };
  CHECK(math.same(scaled(2), scaled(2)));
  CHECK_FALSE(math.same(scaled(2), scaled(3)));
  CHECK_FALSE(math.same(scaled(0.0), scaled(-0.0)));
  CHECK_FALSE(math.less(scaled(3) - scaled(2), c(1)));
  const auto cut = [&](DType type) { return ir::cast(DType::i32, ir::cast(type, v.thread)); };
  CHECK(math.same(cut(DType::u8), cut(DType::u8)));
  CHECK_FALSE(math.same(cut(DType::u8), cut(DType::i8)));
  const auto bits = [&](DType type) {
    return ir::cast(DType::i32, ir::bitcast(type, ir::var(value)));
  };
  CHECK_FALSE(math.same(bits(DType::u32), bits(DType::i32)));
}

TEST_CASE("a quotient of what may be negative is rounded up", "[prover]") {
  // Windows of 16 at steps of 8: there is one even where n < 16, and it does not fit.
  const Symbols v;
  const IndexMath math;
  const auto window = [](const Expr& windows) {
    return make_var("window", ir::VarKind::loop, 8, windows);
  };
  CHECK_FALSE(math.less(window((v.n - c(16)) / c(8) + c(1)) * c(8) + c(15), v.n));
  CHECK_FALSE(math.less(window((v.m - c(72)) / c(64) + c(1)) * c(64), v.m - c(71)));
  CHECK(math.less(window((v.m - c(128)) / c(64) + c(1)) * c(64), v.m - c(64)));  // never rounded
  for (int64_t offset = -20; offset <= 20; ++offset) {
    for (const int64_t by : {2, 3, 8}) {
      const Expr at = window((v.n + c(offset)) / c(by) + c(1)) * c(by);
      for (int64_t last = -by; last <= 2 * by; ++last) {
        if (!math.less(at + c(last), v.n + c(offset + by))) continue;
        for (int64_t n = 1; n < 40; ++n) {
          const int64_t windows = (n + offset) / by + 1;
          CAPTURE(offset, by, last, n);
          REQUIRE((windows <= 0 || (windows - 1) * by + last < n + offset + by));
        }
      }
    }
  }
}

TEST_CASE("random expressions keep their value, and proofs hold, at random points", "[prover]") {
  const Symbols v;
  const IndexMath math;
  std::mt19937 random(7);
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::function<Expr(int)> grow = [&](int depth) -> Expr {
    if (depth == 0) {
      switch (pick(5)) {
        case 0:
          return c(pick(40));
        case 1:
          return v.thread;
        case 2:
          return v.s;
        case 3:
          return v.lane;
        default:
          return v.tile_block;
      }
    }
    const Expr a = grow(depth - 1);
    switch (pick(4)) {
      case 0:
        return a + grow(depth - 1);
      case 1:
        return a * c(1 + pick(16));
      case 2:
        return a / c(1 + pick(24));
      default:
        return a % c(1 + pick(24));
    }
  };
  int proved = 0;
  for (int round = 0; round < 2000; ++round) {
    const Expr e = grow(4);
    const Expr bound = round % 2 == 0 ? c(pick(300)) : v.m;
    const Expr simple = math.simplify(e);
    const bool less = math.less(e, bound);
    const int64_t divisor = math.divisor(e);
    proved += less ? 1 : 0;
    for (int point = 0; point < 20; ++point) {
      Environment at(9);
      const int64_t m = 64 * (1 + pick(4));
      at.set(*v.m->var, m);
      at.set(*v.tile_block->var, pick(static_cast<int>(m / 64)));
      at.set(*v.thread->var, pick(256));
      at.set(*v.s->var, pick(4));
      at.set(*v.lane->var, pick(8));
      const int64_t value = *evaluate(e, at);
      CAPTURE(ir::to_string(e), ir::to_string(simple));
      REQUIRE(evaluate(simple, at) == value);
      if (less) REQUIRE(value < *evaluate(bound, at));
      if (divisor != 0) REQUIRE(value % divisor == 0);
    }
  }
  CHECK(proved > 200);
}
