// Facts that analyses have about values: samples, floats, all threads at once, and accesses that are pending.

#include <limits>

#include "codegen/analysis/evaluate.h"
#include "codegen/analysis/float_range.h"
#include "codegen/analysis/index_form.h"
#include "codegen/analysis/pending_accesses.h"
#include "codegen/analysis/proof_log.h"
#include "codegen/analysis/thread_values.h"
#include "tests/support/catch.h"
#include "tests/support/program_builder.h"

namespace tessera::codegen {
namespace {

using ir::Expr;
using ir::Op;
using test::f32;
using test::number;
using test::ProgramBuilder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Expr call(Op op, const Expr& a, const Expr& b) {
  return ir::binary(op, a, b);
}

}  // namespace

TEST_CASE("a sample evaluates what has values, and stops at what leaves its type", "[analysis]") {
  ProgramBuilder k("sample", 64);
  const Expr t = k.thread(), n = k.dim("n");
  Environment at(8);
  at.set(*t->var, 5);
  CHECK(evaluate(t * number(3) + number(1), at) == 16);
  CHECK(evaluate(ir::select(t < number(6), number(1), number(2)), at) == 1);
  CHECK_FALSE(evaluate(t + n, at));
  at.set(*n->var, std::numeric_limits<int32_t>::max());
  CHECK_FALSE(evaluate(t + n, at));
  CHECK(evaluate(test::wide(t) + test::wide(n), at) == (int64_t{1} << 31) + 4);
  at.clear(*t->var);
  CHECK_FALSE(evaluate(t, at));
}

TEST_CASE("constants and comparisons bound a float", "[analysis]") {
  ProgramBuilder k("sample", 64);
  const Expr x = k.scalar("x", DType::f32);
  const auto range = [&](const Expr& e) {
    return float_range(e, [](const ir::Var&) { return Expr(); });
  };
  CHECK(range(x).may_be_nan);
  CHECK(range(x).low == -kInfinity);
  const FloatRange floor = range(call(Op::max, x, f32(0.5)));
  CHECK(floor.low == 0.5);
  CHECK(floor.high == kInfinity);
  CHECK_FALSE(floor.may_be_nan);  // the maximum of a number and a NaN is the number
  const FloatRange both = range(call(Op::min, call(Op::max, x, f32(1)), f32(4)));
  CHECK(both.low == 1);
  CHECK(both.high == 4);
}

TEST_CASE("an index is evaluated for all threads at once, or modulo a period", "[analysis]") {
  ProgramBuilder k("sample", 4);
  const Expr t = k.thread(), v = k.dim("v");
  auto counter = std::make_shared<ir::Var>(*k.dim("i")->var);
  counter->kind = ir::VarKind::loop;
  counter->lower = number(0);
  const Expr i = ir::var(counter);
  ThreadValues values(t->var, 4);
  CHECK(values.evaluate(t * number(2))->lanes == std::vector<int64_t>{0, 2, 4, 6});
  CHECK(values.evaluate(number(7))->at(3) == 7);
  CHECK_FALSE(values.evaluate(t + i));
  values.bind(*i->var, 10);
  CHECK(values.evaluate(t + i)->at(1) == 11);
  values.define(*v->var, i * number(2));
  CHECK(values.evaluate(v + t)->at(3) == 23);
  values.unbind(*i->var);
  CHECK_FALSE(values.evaluate(v));

  CHECK(period_of(i % number(4) + i % number(6), *i->var) == 12);
  values.bind_phase(*i->var, 3, 4);
  CHECK(values.evaluate(i % number(2))->at(0) == 1);
  CHECK(values.evaluate((i + number(1)) % number(4))->at(0) == 0);
  CHECK_FALSE(values.evaluate(i));
  CHECK_FALSE(values.evaluate(i % number(3)));
}

TEST_CASE("accesses are pending until a barrier, those in flight from their wait on",
          "[analysis]") {
  const FootprintRef now = std::make_shared<Footprint>();
  auto in_flight = [count = size_t{0}](bool writes) mutable {
    auto footprint = std::make_shared<Footprint>();
    footprint->number = ++count;
    footprint->in_flight = true;
    footprint->writes = writes;
    return FootprintRef(footprint);
  };
  const FootprintRef first = in_flight(true), second = in_flight(true), stored = in_flight(false);
  PendingAccesses pending;
  const auto take = [&](Order order, bool is_one_warp = false) {
    pending.take(order, is_one_warp);
    return pending.all().size();
  };
  const Order commit{Order::Kind::commit},
      commit_stores{Order::Kind::commit, Group::thread, 0, Work::stores};
  const Order of_warp{Order::Kind::barrier, Group::warp},
      of_block{Order::Kind::barrier, Group::block};
  pending.add(now);
  pending.add(now);
  CHECK(pending.all().size() == 1);
  pending.add(first);
  take(commit);
  pending.add(stored);  // what a tensor store reads, in groups of its own
  take(commit_stores);
  pending.add(second);
  CHECK(take(commit) == 1);
  REQUIRE(take({Order::Kind::await, Group::thread, 1}) == 2);
  CHECK(pending.all()[1].access == first);
  REQUIRE(take({Order::Kind::await, Group::thread, 0, Work::stores}) == 3);
  CHECK(pending.all()[2].access == stored);
  take(of_warp);
  CHECK(pending.all()[0].after_warp_barrier);
  CHECK(take(of_block) == 0);
  REQUIRE(take({Order::Kind::await, Group::thread, 0}) == 1);
  CHECK(pending.all()[0].access == second);
  CHECK(take(of_warp, true) == 0);  // the warp is all there is

  PendingAccesses other;
  other.add(now);
  pending.merge(other);
  CHECK(pending.all().size() == 1);
}

TEST_CASE("the innermost proof log of a thread gets the claims", "[analysis]") {
  CHECK(ProofLog::active() == nullptr);
  ProgramBuilder k("sample", 64);
  auto var = std::make_shared<ir::Var>(*k.thread()->var);
  var->lower = number(0);
  const Expr t = ir::var(var);
  const IndexMath math;
  const ProofLog outer;
  {
    const ProofLog inner;
    CHECK(math.non_negative(t * number(2)));
    CHECK_FALSE(math.less(t, number(3)));  // not proved, no claim
    math.keep_guard(t < number(3));
    REQUIRE(inner.claims().size() == 2);
    CHECK(inner.claims()[0].kind == Claim::Kind::non_negative);
    CHECK(inner.claims()[1].kind == Claim::Kind::kept_guard);
  }
  CHECK(ProofLog::active() == &outer);
  CHECK(outer.claims().empty());
}

}  // namespace tessera::codegen
