// Builder: loops, conditions and assumptions.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

/// The copies of the loop fill a ring.
void check_producer(const Recorder& r, const PipelineOptions& pipeline, SourceLoc loc) {
  if (pipeline.stages < 2) {
    r.fail("RING_STAGES", "the stages of a ring are out of range", loc,
           "2 .. 8 of a pipelined loop with `producer`", fmt::format("{}", pipeline.stages),
           "the load role fills one stage while the others take another");
  }
  if (pipeline.across) {
    r.fail("PRODUCER", "a pipelined loop with `across` and `producer`", loc, "one of them", {},
           "leave out `across`: the load role goes on to the next round by itself");
  }
}

constexpr int64_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();

/// Values that an i32 may have.
struct Range {
  int64_t low = kLowest, high = kHighest;
};

Range range_of(const ir::Expr& e) {
  if (ir::is_constant(e)) return {e->integer, e->integer};
  if (e->op == ir::Op::var) {
    const ir::Expr &lower = e->var->lower, &upper = e->var->upper;
    Range range;
    if (lower && ir::is_constant(lower)) range.low = lower->integer;
    if (upper && ir::is_constant(upper)) range.high = upper->integer - 1;
    return range;
  }
  if (e->type != DType::i32 || e->args.size() != 2) return {};
  const Range a = range_of(e->args[0]), b = range_of(e->args[1]);
  Range range;
  switch (e->op) {
    case ir::Op::add:
      range = {a.low + b.low, a.high + b.high};
      break;
    case ir::Op::sub:
      range = {a.low - b.high, a.high - b.low};
      break;
    case ir::Op::div:
      if (a.low < 0 || b.low < 1) return {};
      return {a.low / b.high, a.high / b.low};
    case ir::Op::min:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case ir::Op::max:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    default:
      return {};
  }
  const bool wraps = range.low < kLowest || range.high > kHighest;
  return wraps ? Range{} : range;
}

/// True if codegen's loop can run it: its step goes up, or what counts its rounds is i32.
bool stays_in_i32(const ir::Loop& loop) {
  if (loop.begin->type != DType::i32) return true;
  const Range begin = range_of(loop.begin), end = range_of(loop.extents[0]),
              step = range_of(loop.step);
  const bool has_distance =
      end.high - begin.low <= kHighest - 1 && end.low - begin.high >= kLowest + 1;
  if (step.low < 1) {
    return has_distance && step.low > kLowest && begin.high - end.low - step.low <= kHighest &&
           begin.low + step.low >= kLowest && end.high + step.high <= kHighest;
  }
  // Pipelined loops count their rounds.
  const bool is_open = !ir::is_constant(loop.begin) || !ir::is_constant(loop.extents[0]);
  return is_open || loop.kind != ir::LoopKind::pipelined || has_distance;
}

}  // namespace

void require_arity(const Recorder& recorder, size_t extents, int arity, SourceLoc loc) {
  if (extents != static_cast<size_t>(arity)) {
    recorder.fail("RANK", "the loop body takes another number of indices than there are extents",
                  loc, fmt::format("{} extents", arity), fmt::format("{}", extents));
  }
}

void Builder::parallel_loop(std::vector<int64_t> extents,
                            const std::function<void(const std::vector<Value>&)>& body,
                            SourceLoc loc, std::string label, std::optional<ir::CopyPlan> plan) {
  static const char* const kNames[] = {"i", "j", "k", "l"};
  ir::Loop loop;
  loop.kind = ir::LoopKind::parallel;
  loop.plan = plan;
  loop.label = std::move(label);
  loop.extents = constant_shape(*recorder_, extents, "parallel", loc);
  loop.begin = ir::index(0);
  loop.step = ir::index(1);
  loop.body = recorder_->record_loop(loc, Recorder::Runs::always, [&] {
    std::vector<Value> indices;
    for (size_t d = 0; d < extents.size(); ++d) {
      loop.vars.push_back(recorder_->new_var(kNames[d], DType::i32, ir::VarKind::loop, loc,
                                             ir::index(0), ir::index(extents[d])));
      recorder_->iterate(loop.vars.back(), 0, extents[d] - 1);
      recorder_->iteration_writes.begin(loop.vars.back(), extents[d]);
      indices.emplace_back(recorder_.get(), ir::var(loop.vars.back()));
    }
    ++recorder_->parallel_depth;
    body(indices);
    if (--recorder_->parallel_depth == 0) recorder_->iteration_writes.end();
  });
  recorder_->add({std::move(loop), loc});
}

void Builder::loop(ir::LoopKind kind, Arg begin, Arg end, Arg step,
                   const std::function<void(const Value&)>& body, SourceLoc loc,
                   PipelineOptions pipeline, bool rolled) {
  const DType type = end.value().dtype() == DType::i64 || begin.value().dtype() == DType::i64
                         ? DType::i64
                         : DType::i32;
  ir::Loop node;
  node.kind = kind;
  node.begin = begin.as(type, recorder_.get()).expr();
  node.extents = {end.as(type, recorder_.get()).expr()};
  node.step = step.as(type, recorder_.get()).expr();
  recorder_->check_in_scope(node.begin, loc);
  recorder_->check_in_scope(node.extents[0], loc);
  if (ir::is_constant(node.step, 0)) {
    recorder_->fail("LOOP_STEP", "the step of a loop is 0", loc, "another number", "0");
  }
  if (!stays_in_i32(node)) {
    const auto wide = [&](const Arg& bound) {
      return Arg(cast(DType::i64, bound.as(type, recorder_.get())), loc);
    };
    const auto narrow = [&](const Value& i) { body(let("i", cast(DType::i32, i), loc)); };
    if (kind != ir::LoopKind::pipelined) {
      return counted_loop(wide(begin).value(), wide(end).value(), wide(step).value(), narrow, loc,
                          rolled);
    }
    const Value first = wide(begin).value();
    return loop(
        kind, cast(DType::i64, 0), wide(end).value() - first, cast(DType::i64, 1),
        [&](const Value& round) { narrow(first + round); }, loc, pipeline);
  }
  if (!ir::is_constant(node.step) || node.step->integer < 0) {
    const Value first = begin.as(type, recorder_.get()), last = end.as(type, recorder_.get());
    return counted_loop(first, last, step.as(type, recorder_.get()), body, loc, rolled);
  }
  if (pipeline.producer) check_producer(*recorder_, pipeline, loc);
  if (pipeline.stages < 1 || pipeline.stages > 8) {
    recorder_->fail("PIPELINE_STAGES", "the stages of a pipelined loop are out of range", loc,
                    "1 .. 8", fmt::format("{}", pipeline.stages));
  }
  if (kind == ir::LoopKind::pipelined) node.stages = pipeline.stages;
  node.in_place = pipeline.in_place;
  node.across = pipeline.across;
  node.producer = pipeline.producer;
  node.rolled = rolled;
  const char* name = kind == ir::LoopKind::unrolled     ? "u"
                     : kind == ir::LoopKind::vectorized ? "v"
                                                        : "s";
  const bool by_thread =
      recorder_->uses_thread(node.begin) || recorder_->uses_thread(node.extents[0]);
  recorder_->thread_depth += by_thread;
  // A loop whose bounds come at run time may not run for all indices around it, or not at all.
  const bool fixed = ir::is_constant(node.begin) && ir::is_constant(node.extents[0]) &&
                     node.begin->integer < node.extents[0]->integer;
  const auto round = [&] {
    node.vars.push_back(
        recorder_->new_var(name, type, ir::VarKind::loop, loc, node.begin, node.extents[0]));
    if (fixed) {
      const int64_t first = node.begin->integer;
      const int64_t turns = (node.extents[0]->integer - 1 - first) / node.step->integer;
      recorder_->iterate(node.vars[0], first, first + turns * node.step->integer);
    }
    body(Value(recorder_.get(), ir::var(node.vars[0])));
  };
  if (kind == ir::LoopKind::serial || kind == ir::LoopKind::pipelined) {
    breakable_body(node, fixed, round, loc);
  } else {
    const auto runs = fixed ? Recorder::Runs::always : Recorder::Runs::under_condition;
    node.body = recorder_->record_loop(loc, runs, round);
  }
  recorder_->thread_depth -= by_thread;
  recorder_->add({std::move(node), loc});
}

void Builder::counted_loop(const Value& begin, const Value& end, const Value& step,
                           const std::function<void(const Value&)>& body, SourceLoc loc,
                           bool rolled) {
  recorder_->check_in_scope(step.expr(), loc);
  Value rounds;
  if (ir::is_constant(step.expr())) {
    const int64_t width = step.expr()->integer;
    const Value distance = width < 0 ? begin - end : end - begin;
    rounds = ceil_div(max(distance, cast(begin.dtype(), 0)), std::abs(width));
  } else {
    assume(step != 0, loc);
    const Value up = step > 0;
    const Value way = max(select(up, end - begin, begin - end), cast(begin.dtype(), 0));
    const Value width = max(abs(step), cast(begin.dtype(), 1));
    // Rounded up without a sum that may overflow; a step of 0 runs nothing.
    rounds = select(
        step == 0, cast(begin.dtype(), 0),
        way / width + select(way % width == 0, cast(begin.dtype(), 0), cast(begin.dtype(), 1)));
  }
  const Value count = ir::is_constant(rounds.expr()) ? rounds : let("rounds", rounds, loc);
  const Value zero = cast(begin.dtype(), 0);
  loop(
      ir::LoopKind::serial, zero, count, cast(begin.dtype(), 1),
      [&](const Value& round) { body(let("i", begin + round * step, loc)); }, loc, {}, rolled);
}

void Builder::if_(Arg condition, const std::function<void()>& then, SourceLoc loc) {
  if_else(std::move(condition), then, nullptr, loc);
}

void Builder::if_else(Arg condition, const std::function<void()>& then,
                      const std::function<void()>& otherwise, SourceLoc loc) {
  const Value test = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(test.expr(), loc);
  ir::If node;
  node.condition = test.expr();
  const int breaks = recorder_->breaks();
  const bool by_thread = recorder_->uses_thread(node.condition);
  recorder_->thread_depth += by_thread;
  std::vector<ir::Expr>& conditions = recorder_->iteration_writes.conditions;
  conditions.push_back(node.condition);
  node.then = recorder_->record(loc, Recorder::Runs::under_condition, then);
  conditions.back() = ir::unary(ir::Op::logical_not, node.condition);
  if (otherwise)
    node.otherwise = recorder_->record(loc, Recorder::Runs::under_condition, otherwise);
  conditions.pop_back();
  recorder_->thread_depth -= by_thread;
  recorder_->add({std::move(node), loc});
  if (recorder_->breaks() > breaks)
    recorder_->leave_loop((*recorder_->done())->read(loc).expr(), loc);
}

void Builder::breakable_body(ir::Loop& node, bool runs_always, const std::function<void()>& body,
                             SourceLoc loc) {
  Recorder& r = *recorder_;
  std::optional<Ref> done;
  const auto round = [&] {
    const size_t rests = r.rests();
    body();
    r.close_rests(rests);  // so that the break comes after all of the body
    if (!done) return;
    const Value left = done->read(loc);
    r.add({ir::Break{left.expr()}, loc});
  };
  const auto runs = runs_always ? Recorder::Runs::always : Recorder::Runs::under_condition;
  node.body = r.record_loop(loc, runs, round, &done);
  if (done) r.store(done->region(), Arg(false, loc).as(DType::boolean, &r), loc);
}

void Builder::endless_loop(const std::function<void(const Value&)>& body, SourceLoc loc) {
  ir::Loop node;
  node.kind = ir::LoopKind::serial;
  node.begin = ir::index(0);
  node.extents = {ir::index(std::numeric_limits<int32_t>::max())};
  node.step = ir::index(1);
  const auto round = [&] {
    node.vars.push_back(recorder_->new_var("round", DType::i32, ir::VarKind::loop, loc, node.begin,
                                           node.extents[0]));
    body(Value(recorder_.get(), ir::var(node.vars[0])));
    if (recorder_->breaks() == 0) {
      recorder_->fail("BREAK", "a loop without k.break_if", loc, "at least one in its body", {},
                      "use k.serial for a number of rounds that is known before the loop");
    }
  };
  breakable_body(node, false, round, loc);
  recorder_->add({std::move(node), loc});
}

void Builder::break_if(Arg condition, SourceLoc loc) {
  const Value test = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(test.expr(), loc);
  std::optional<Ref>* const done = recorder_->done();
  if (done == nullptr) {
    recorder_->fail("BREAK", "break_if() where it can leave no loop", loc,
                    "k.loop, k.serial, k.pipelined or k.persistent as the innermost loop",
                    recorder_->depth() > 1 ? "another loop, or none" : "no loop");
  }
  if (!*done) {
    ir::Buffer flag;
    flag.name = "done";
    flag.dtype = DType::boolean;
    flag.space = ir::Space::scalar;
    flag.loc = loc;
    done->emplace(recorder_->new_buffer(std::move(flag)));
  }
  const Value left = let("leaves", test, loc);
  recorder_->store((*done)->region(), left, loc);
  recorder_->leave_loop(left.expr(), loc);
}

void Builder::assume(Arg condition, SourceLoc loc) {
  const Value fact = condition.as(DType::boolean, recorder_.get());
  recorder_->check_in_scope(fact.expr(), loc);
  recorder_->add({ir::Assume{fact.expr()}, loc});
}

}  // namespace tessera::dsl
