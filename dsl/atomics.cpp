// Builder: atomics on shared and global memory, and signals between blocks, which are made of them.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

using ir::AtomicOp;

bool has_atomic(AtomicOp op, DType dtype) {
  switch (dtype) {
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
    case DType::f32:
    case DType::f64:
      return true;
    case DType::f16:
    case DType::bf16:
      return op == AtomicOp::add;
    default:
      return false;
  }
}

/// Throws unless `what` can change the element in one step.
void check_element(const Recorder& r, const Ref& element, const std::string& what, SourceLoc loc) {
  const ir::Region& region = element.region();
  const ir::Buffer& buffer = *region.buffer;
  if (!region.order.empty()) {
    r.fail("NOT_AN_ELEMENT", fmt::format("{} of '{}' is not on one element", what, buffer.name),
           loc, fmt::format("{} indices", region.offsets.size()),
           fmt::format("{} dimensions left free", region.order.size()));
  }
  if (buffer.space != ir::Space::global && buffer.space != ir::Space::shared &&
      buffer.space != ir::Space::cluster) {
    r.fail("ATOMIC", fmt::format("{} on '{}', which other threads cannot see", what, buffer.name),
           loc, "a shared buffer or an output tensor", std::string(name(buffer.space)));
  }
  if (buffer.space == ir::Space::global && !buffer.is_output) {
    r.fail("WRITE_READ_ONLY", fmt::format("{} writes the input tensor '{}'", what, buffer.name),
           loc, "a tensor declared with k.output", "k.input");
  }
  if (region.terms.cache != ir::CacheHint::none) {
    r.fail("CACHE_HINT", fmt::format("{} on '{}' takes no hint for the caches", what, buffer.name),
           loc);
  }
}

/// Throws unless blocks can signal each other by the cell, in a statement of the whole block.
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
  if (r.role != nullptr) {
    r.fail("SYNC_ROLE", fmt::format("{} in role '{}'", what, r.role->name), loc,
           "a statement of the role's own threads", "one of all threads of the block",
           "put it before k.roles", r.role->loc);
  }
  const std::vector<ir::Expr>& indices = cell.region().offsets;
  const bool differs = std::any_of(indices.begin(), indices.end(),
                                   [&](const ir::Expr& index) { return r.uses_thread(index); });
  if (differs || r.thread_depth > 0 || r.parallel_depth > 0) {
    r.fail("SYNC_DIVERGENT",
           differs ? fmt::format("{} on a cell that depends on the thread index", what)
                   : fmt::format("{} where not all threads of the block come together", what),
           loc, "a statement of the whole block", {},
           "conditions, loops and indices around it must be the same for the whole block");
  }
}

}  // namespace

Value Builder::atomic(AtomicOp op, const Ref& element, const Arg& value, const Arg* expected,
                      bool fetch, MemoryOrder order, SourceLoc loc) {
  Recorder& r = *recorder_;
  const ir::Region& region = element.region();
  const ir::Buffer& buffer = *region.buffer;
  const std::string what = fmt::format("atomic_{}", name(op));
  check_element(r, element, what, loc);
  if (!has_atomic(op, buffer.dtype)) {
    const bool known = has_atomic(AtomicOp::add, buffer.dtype);
    r.fail("DTYPE", fmt::format("there is no {} on '{}'", what, buffer.name), loc,
           op == AtomicOp::add ? "i32, u32, i64, u64, f64, f32, f16 or bf16"
                               : "i32, u32, i64, u64, f64 or f32",
           std::string(name(buffer.dtype)),
           known ? "" : "keep the element in a wider dtype while threads share it");
  }
  ir::Atomic node;
  node.op = op;
  node.buffer = region.buffer;
  node.indices = region.offsets;
  node.value = value.as(buffer.dtype, &r).expr();
  if (expected != nullptr) node.compare = expected->as(buffer.dtype, &r).expr();
  node.order = order;
  node.terms = region.terms;
  for (const ir::Expr& index : node.indices) r.check_in_scope(index, loc);
  r.check_in_scope(node.value, loc);
  r.check_in_scope(node.compare, loc);
  if (fetch) node.old = r.new_var(buffer.name + "_old", buffer.dtype, ir::VarKind::value, loc);
  const ir::VarRef old = node.old;
  r.add({std::move(node), loc}, element.element_name());
  return old ? Value(&r, ir::var(old)) : Value();
}

void Builder::atomic_add(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  atomic(AtomicOp::add, element, value, nullptr, false, order, loc);
}
void Builder::atomic_max(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  atomic(AtomicOp::max, element, value, nullptr, false, order, loc);
}
void Builder::atomic_min(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  atomic(AtomicOp::min, element, value, nullptr, false, order, loc);
}
Value Builder::atomic_fetch_add(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  return atomic(AtomicOp::add, element, value, nullptr, true, order, loc);
}
Value Builder::atomic_fetch_max(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  return atomic(AtomicOp::max, element, value, nullptr, true, order, loc);
}
Value Builder::atomic_fetch_min(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  return atomic(AtomicOp::min, element, value, nullptr, true, order, loc);
}
Value Builder::atomic_exchange(const Ref& element, Arg value, MemoryOrder order, SourceLoc loc) {
  return atomic(AtomicOp::exchange, element, value, nullptr, true, order, loc);
}
Value Builder::atomic_compare_exchange(const Ref& element, Arg expected, Arg value,
                                       MemoryOrder order, SourceLoc loc) {
  return atomic(AtomicOp::compare_exchange, element, value, &expected, true, order, loc);
}

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

void Builder::wait_for_signal(const Ref& cell, const std::function<Value(const Value&)>& holds,
                              SourceLoc loc) {
  Recorder& r = *recorder_;
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
  if_(
      thread() == 0,
      [&] {
        r.add({std::move(node), loc}, cell.element_name());
      },
      loc);
  sync(loc);
}
void Builder::wait_until(const Ref& cell, Arg value, SourceLoc loc) {
  const Value wanted = value.as(cell.region().buffer->dtype, recorder_.get());
  wait_for_signal(
      cell, [&](const Value& now) { return now == wanted; }, loc);
}

}  // namespace tessera::dsl
