// Builder: atomics on shared and global memory.

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

}  // namespace

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
  r.check_inside(region, loc);
}

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

}  // namespace tessera::dsl
