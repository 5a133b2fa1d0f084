// TileLowering: the place of an element, and its bounds.

#include <fmt/format.h>

#include "codegen/layouts/vector_width.h"
#include "codegen/lowering/tile_lowering.h"
#include "dsl/base/error.h"

namespace tessera::codegen {

Expr TileLowering::resolve(const Expr& e) const {
  if (values_.empty()) return e;
  return ir::substitute(e, [&](const VarRef& var) {
    const auto found = values_.find(var.get());
    return found == values_.end() ? Expr() : found->second;
  });
}

std::vector<Expr> TileLowering::resolve(const std::vector<Expr>& list) const {
  std::vector<Expr> result;
  for (const Expr& e : list) result.push_back(resolve(e));
  return result;
}

Expr TileLowering::register_slot(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                                 SourceLoc loc) const {
  Expr slot = ir::index(0);
  if (buffer.space == ir::Space::fragment) {
    for (const layout::Digit& digit : layouts_.fragments.at(buffer.id).digits()) {
      if (digit.slot == 0) continue;
      const Expr& index = indices[static_cast<size_t>(digit.axis)];
      slot =
          slot + (index / ir::index(digit.div)) % ir::index(digit.extent) * ir::index(digit.slot);
    }
  } else {
    for (size_t d = 0; d < indices.size(); ++d) slot = slot * buffer.shape[d] + indices[d];
  }
  slot = math_.to_expr(math_.form(slot, true), slot->type);
  if (buffer.dynamic) return ir::cast(DType::i32, slot);
  // Registers have no addresses: only unrolled loops may affect the index.
  std::vector<VarRef> vars;
  ir::collect_vars(slot, vars);
  for (const VarRef& var : vars) {
    const bool constant_bounds = var->kind == ir::VarKind::loop && var->lower && var->upper &&
                                 ir::is_constant(var->lower) && ir::is_constant(var->upper);
    if (constant_bounds) continue;
    fail(
        "REGISTER_INDEX",
        fmt::format("the index of '{}' is not a constant after unrolling", buffer.name), loc,
        "constants and indices of unrolled loops", ir::to_string(slot),
        "registers cannot be indexed at run time: unroll the loop, use shared memory, or declare a "
        "local array with {.dynamic = true}");
  }
  return ir::cast(DType::i32, slot);
}

/// The indices in the root buffer of an element of a reshaped view.
std::vector<Expr> TileLowering::in_root(const ir::Buffer& view,
                                        const std::vector<Expr>& indices) const {
  Expr flat = ir::index(0);
  for (size_t d = 0; d < indices.size(); ++d) flat = flat * view.shape[d] + indices[d];
  const std::vector<Expr>& shape = view.alias_of->shape;
  std::vector<Expr> result(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    result[d] = math_.simplify(d == 0 ? flat : flat % shape[d]);
    flat = flat / shape[d];
  }
  return result;
}

Expr TileLowering::offset_term(const Expr& index, const Expr& stride) const {
  const Expr whole = ir::cast(DType::i64, index) * ir::cast(DType::i64, stride);
  if (!ir::is_constant(stride) || ir::is_constant(stride, 1)) return whole;
  // The rest of the index is not above it, so it cannot overflow either.
  Form rest = math_.form(index);
  Expr steps = ir::constant(DType::i64, 0);
  for (size_t i = rest.terms.size(); i-- > 0;) {
    const Term& term = rest.terms[i];
    const bool is_step = term.coefficient > 0 && term.atom->op == ir::Op::var &&
                         unrolled_vars_.contains(term.atom->var.get());
    if (!is_step) continue;
    steps = steps + ir::cast(DType::i64, term.atom) *
                        ir::constant(DType::i64, term.coefficient * stride->integer);
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (ir::is_constant(steps, 0) || rest.is_constant()) return whole;
  return ir::cast(DType::i64, math_.to_expr(rest, index->type)) * ir::cast(DType::i64, stride) +
         steps;
}

void TileLowering::check_indices(const ir::BufferRef& buffer, const std::vector<Expr>& indices,
                                 const std::vector<ir::TileIndex>& tiles,
                                 const std::function<Expr(const Expr&)>& at, SourceLoc loc) {
  CheckIndices check;
  const auto require = [&](const Expr& index, const Expr& begin, const Expr& extent, int dim) {
    if (math_.non_negative(index - begin) && math_.less(index, begin + extent)) return;
    check.ranges.push_back({index, begin, extent, dim});
  };
  const bool is_reshaped = buffer->alias_of && !buffer->block;
  if (is_reshaped || array_of(buffer)->space == ArraySpace::registers) {
    for (size_t d = 0; d < indices.size(); ++d) {
      require(at(indices[d]), ir::index(0), buffer->shape[d], static_cast<int>(d));
    }
  }
  for (const ir::TileIndex& tile : tiles) {
    require(at(tile.index), at(tile.begin), at(tile.extent), -1);
  }
  if (check.ranges.empty()) return;
  check.array = array_of(buffer);
  for (const Expr& index : indices) check.indices.push_back(at(index));
  emit({std::move(check), loc});
}

Access TileLowering::access(const ir::BufferRef& buffer, const std::vector<Expr>& indices,
                            int width, ir::AccessTerms terms, SourceLoc loc) {
  Access result;
  result.array = array_of(buffer);
  result.width = width;
  if (result.array->space == ArraySpace::registers) {
    result.offset = register_slot(*buffer, indices, loc);
    return result;
  }
  const bool shared = result.array->space != ArraySpace::global;
  bool proved = true;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Expr index = math_.simplify(indices[d]);
    const Expr& extent = buffer->shape[d];
    result.indices.push_back(index);
    // A vector starts at a multiple of its width, which also divides the last extent
    // (feasible_vector): it is inside or outside as a whole, so its first element decides.
    const bool low = math_.non_negative(index);
    const bool high = math_.less(index, extent);
    if (low && high) continue;
    proved = false;
    if (terms.unchecked || shared) continue;
    auto require = [&](const Expr& test) {
      math_.keep_guard(test);
      result.guard = result.guard ? result.guard && test : test;
    };
    if (!low) require(ir::binary(ir::Op::le, ir::constant(index->type, 0), index, loc));
    if (!high) require(index < extent);
  }
  if (shared && buffer->alias_of) result.indices = in_root(*buffer, result.indices);
  result.bounds = proved ? Bounds::proved : result.guard ? Bounds::guarded : Bounds::unchecked;
  if (!shared) {
    result.cache = terms.cache;
    result.offset = ir::constant(DType::i64, 0);
    for (size_t d = 0; d < indices.size(); ++d) {
      result.offset = result.offset + offset_term(result.indices[d], buffer->strides[d]);
    }
  }
  const std::string guard = result.guard ? ": " + ir::to_string(result.guard) : "";
  const bool has_hint = result.cache != ir::CacheHint::none;
  result_.notes.push_back(fmt::format(
      "{}: {}: {} x {}, {}{}{}{}", to_string(loc), buffer->name, width, name(buffer->dtype),
      name(result.bounds), guard, has_hint ? ", " : "", has_hint ? ir::name(result.cache) : ""));
  return result;
}

void TileLowering::load(const ir::ElementLoad& element, SourceLoc loc) {
  const bool registers = array_of(element.buffer)->space == ArraySpace::registers;
  if (element.buffer->dtype == DType::e2m1 && !registers) {
    fail("E2M1_NIBBLE",
         fmt::format("'{}' holds two e2m1 codes per byte and is read one at a time",
                     element.buffer->name),
         loc, "an even vector", "one element");
  }
  emit({Load{access(element, 1, loc), element.var, {}}, loc});
}

void TileLowering::store(const ir::ElementStore& element, SourceLoc loc) {
  const ir::Buffer& buffer = *element.buffer;
  const bool registers = array_of(element.buffer)->space == ArraySpace::registers;
  if (buffer.dtype == DType::e2m1 && !registers) {
    fail(
        "E2M1_NIBBLE",
        fmt::format("'{}' holds two e2m1 codes per byte and is written one at a time", buffer.name),
        loc, "an even vector", "one element");
  }
  require_writable(buffer, loc);
  Store node{access(element, 1, loc), resolve(element.value), {}};
  when(registers ? Expr() : sole_owner_, loc, [&] { emit({node, loc}); });
}

void TileLowering::note_single_sum(const ir::Buffer& buffer, const char* reason, SourceLoc loc) {
  result_.notes.push_back(
      fmt::format("{}: {}: one atomic per element: {}", to_string(loc), buffer.name, reason));
}

void TileLowering::note_single_sums(const ir::Body& body, int64_t vector) {
  for (const ir::Stmt& stmt : body) {
    const auto* atomic = std::get_if<ir::Atomic>(&stmt.node);
    if (atomic == nullptr || !is_sum(*atomic)) continue;
    if (!has_wide_form(*atomic)) {
      const bool is_ordered = atomic->order != ir::MemoryOrder::relaxed;
      note_single_sum(*atomic->buffer,
                      atomic->old  ? "its old value is used"
                      : is_ordered ? "it orders other accesses"
                                   : "shared memory adds one f32 at a time",
                      stmt.loc);
    } else if (vector == 1) {
      note_single_sum(*atomic->buffer, "a thread has no neighbouring elements", stmt.loc);
    }
  }
}

void TileLowering::atomic(const ir::Atomic& from, SourceLoc loc) {
  require_writable(*from.buffer, loc);
  Atomic node;
  node.op = from.op;
  node.to = access(from, 1, loc);
  if (from.value) node.value = resolve(from.value);
  if (from.compare) node.compare = resolve(from.compare);
  node.old = from.old;
  node.order = from.order;
  if (from.until) {
    node.until = resolve(from.until);
    result_.program.cooperative = true;
  }
  when(sole_owner_, loc, [&] { emit({node, loc}); });
}

void TileLowering::require_writable(const ir::Buffer& buffer, SourceLoc loc) const {
  if (buffer.space == ir::Space::global && !buffer.is_output) {
    fail("WRITE_READ_ONLY", fmt::format("the input tensor '{}' is written", buffer.name), loc,
         "a tensor declared with k.output", "k.input");
  }
}

}  // namespace tessera::codegen
