// Builder: signals between blocks, and waits for them. Made of atomics, which one thread executes for all.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

using ir::AtomicOp;

/// Throws unless blocks can signal each other by the cell, in a statement of all threads of the block or the role.
void check_cell(const Recorder& r, const Ref& cell, const std::string& what, SourceLoc loc) {
  check_element(r, cell, what, loc);
  const ir::Buffer& buffer = *cell.region().buffer;
  if (buffer.space != ir::Space::global) {
    r.fail("ATOMIC", fmt::format("{} on '{}', which other blocks cannot see", what, buffer.name),
           loc, "an output tensor", std::string(name(buffer.space)));
  }
  if (buffer.dtype != DType::i32 && buffer.dtype != DType::u32) {
    r.fail("DTYPE", fmt::format("there is no {} on '{}'", what, buffer.name), loc, "i32 or u32",
           std::string(name(buffer.dtype)));
  }
  const char* const all = r.role != nullptr ? "role" : "block";
  const std::vector<ir::Expr>& indices = cell.region().offsets;
  const bool differs = std::any_of(indices.begin(), indices.end(),
                                   [&](const ir::Expr& index) { return r.uses_thread(index); });
  if (differs || r.thread_depth > 0 || r.parallel_depth > 0) {
    r.fail("SYNC_DIVERGENT",
           differs ? fmt::format("{} on a cell that depends on the thread index", what)
                   : fmt::format("{} where not all threads of the {} come together", what, all),
           loc, fmt::format("a statement of the whole {}", all), {},
           fmt::format("conditions, loops and indices around it must be the same for the whole {}",
                       all));
  }
}

}  // namespace

void Builder::signal(AtomicOp op, const Ref& cell, const Arg& value, SourceLoc loc) {
  check_cell(*recorder_, cell, op == AtomicOp::add ? "signal_add" : "signal", loc);
  sync(loc);
  if_(
      thread() == 0, [&] { atomic(op, cell, value, nullptr, false, MemoryOrder::acq_rel, loc); },
      loc);
}
void Builder::signal(const Ref& cell, Arg value, SourceLoc loc) {
  signal(AtomicOp::exchange, cell, value, loc);
}
void Builder::signal_add(const Ref& cell, Arg value, SourceLoc loc) {
  signal(AtomicOp::add, cell, value, loc);
}

Value Builder::wait_for_signal(const Ref& cell, const std::function<Value(const Value&)>& holds,
                               SourceLoc loc) {
  Recorder& r = *recorder_;
  // In a region of manual_sync too, the compiler orders the accesses to what the leader has found.
  const auto by_compiler = [&](const auto& record) {
    const bool manual = std::exchange(r.manual_sync, false);
    record();
    r.manual_sync = manual;
  };
  check_cell(r, cell, "wait_until", loc);
  ir::Atomic node;
  node.op = AtomicOp::load;
  node.buffer = cell.region().buffer;
  node.indices = cell.region().offsets;
  node.order = MemoryOrder::acq_rel;
  node.terms = cell.region().terms;
  for (const ir::Expr& index : node.indices) r.check_in_scope(index, loc);
  const ir::Body condition = r.record(loc, Recorder::Runs::under_condition, [&] {
    const ir::Buffer& buffer = *node.buffer;
    node.old = r.new_var(buffer.name + "_now", buffer.dtype, ir::VarKind::value, loc);
    node.until = Arg(holds(Value(&r, ir::var(node.old))), loc).as(DType::boolean, &r).expr();
    r.check_in_scope(node.until, loc);
  });
  if (!condition.empty()) {
    r.fail("WAIT_CONDITION", "the condition of wait_until records statements", loc,
           "an expression of the cell's value and of values from before", {},
           "read what it needs before wait_until", condition.front().loc);
  }
  if (r.uses_thread(node.until)) {
    r.fail("SYNC_DIVERGENT", "the condition of wait_until depends on the thread index", loc,
           "a condition that is the same for the whole block");
  }
  ir::Buffer buffer;
  buffer.name = node.old->name;
  buffer.dtype = node.buffer->dtype;
  buffer.space = ir::Space::shared;
  buffer.shape = {ir::index(1)};
  buffer.loc = loc;
  const Ref found = r.new_buffer(std::move(buffer));
  const ir::Expr old = ir::var(node.old);
  if_(
      thread() == 0,
      [&] {
        r.add({std::move(node), loc}, cell.element_name());
        by_compiler([&] {
          r.add({ir::ElementStore{found.region().buffer, {ir::index(0)}, old, {}}, loc});
        });
      },
      loc);
  sync(loc);
  Value result;
  by_compiler([&] { result = uniform(found(0).read(loc), loc); });
  r.drop_if_unread(found.region().buffer, result.expr()->var);
  return result;
}
Value Builder::wait_until(const Ref& cell, Arg value, SourceLoc loc) {
  const Value wanted = value.as(cell.region().buffer->dtype, recorder_.get());
  return wait_for_signal(
      cell, [&](const Value& now) { return now == wanted; }, loc);
}

}  // namespace tessera::dsl
