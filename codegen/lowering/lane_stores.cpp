// LaneLowering: stores whose lanes are gathered first, and operations on pairs of 16-bit floats.

#include <fmt/format.h>

#include "codegen/lowering/lane_lowering.h"

namespace tessera::codegen {
namespace {

/// True if the conversion works on pairs, so that a vector should be gathered before it.
bool converts_in_pairs(DType to, DType from) {
  if (from == DType::f16) return to == DType::e2m1;
  if (from == DType::e4m3) return to == DType::f16;
  return from == DType::f32 && is_float(to) && bits(to) < 32;
}

bool has_packed_form(ir::Op op) {
  return op == ir::Op::add || op == ir::Op::sub || op == ir::Op::mul || op == ir::Op::min ||
         op == ir::Op::max || op == ir::Op::abs;
}

}  // namespace

void LaneLowering::collect(const ir::Stmt& stmt) {
  const ir::ElementStore& element = *stored_by(stmt);
  const Expr& value = element.value;
  const bool pairs =
      value->op == ir::Op::cast && converts_in_pairs(value->type, value->args[0]->type);
  Collected c;
  c.element = &element;
  c.loc = stmt.loc;
  c.adds = sums_.contains(&stmt);
  const bool packs = width_ % 2 == 0 && is_half(value->type) && has_packed_form(value->op) &&
                     can_pack(value, element);
  if (in_registers(element.buffer)) {
    if (pairs || packs) c.values = register_run(element.buffer, element.indices);
    if (!c.values.array) return;
    check_lanes(element, stmt.loc);
  } else {
    t_.require_writable(*element.buffer, stmt.loc);
    const std::vector<Expr> indices = indices_of(element);
    c.fits = c.adds ? feasible(element.buffer, indices) : vector_of(element.buffer, indices);
    if (c.fits == 1 && c.adds) {
      t_.note_single_sum(*element.buffer, "the run is not known to be consecutive and aligned",
                         stmt.loc);
    }
    if (c.fits == 1) return;
    load_values_of(indices);
    check_lanes(element, stmt.loc);
    const auto vector = value->op == ir::Op::var ? vectors_.find(value->var.get()) : vectors_.end();
    c.whole = vector != vectors_.end();
    c.values = c.whole ? vector->second
                       : new_vector(element.buffer->name + "_vec", element.buffer->dtype, stmt.loc);
  }
  if (pairs) {
    const Expr& from = value->args[0];
    const auto vector = from->type != DType::f32 && from->op == ir::Op::var
                            ? vectors_.find(from->var.get())
                            : vectors_.end();
    c.given = vector != vectors_.end();
    c.wide = c.given ? vector->second
                     : new_vector(fmt::format("{}_{}", element.buffer->name, name(from->type)),
                                  from->type, stmt.loc);
  }
  if (packs) {
    for (const Expr& arg : value->args)
      c.packed.push_back(packed(arg, element.buffer->name, c.loc));
  }
  collected_[&stmt] = c;
}

bool LaneLowering::can_pack(const Expr& e, const ir::ElementStore& target) const {
  if (!is_half(e->type)) return false;
  if (is_same_in_all_lanes(e)) return true;
  if (e->op == ir::Op::var) {
    if (same_registers_.contains(e->var.get())) return true;
    if (vectors_.contains(e->var.get())) return true;
    const auto own = changed_.find(e->var.get());
    if (own == changed_.end() || own->second.array.get() != array(target.buffer)) return false;
    const Slice run = register_run(target.buffer, target.indices);
    return run.array && t_.math_.same(run.base, own->second.base) && stores_to(*run.array) == 1;
  }
  return has_packed_form(e->op) &&
         std::all_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return can_pack(arg, target); });
}

bool LaneLowering::is_same_in_all_lanes(const Expr& e) const {
  std::vector<VarRef> vars;
  ir::collect_vars(t_.resolve(e), vars);
  return std::none_of(vars.begin(), vars.end(), [](const VarRef& var) {
    return var->kind == ir::VarKind::loop || var->kind == ir::VarKind::value;
  });
}

std::ptrdiff_t LaneLowering::stores_to(const Array& registers) const {
  return std::count_if(body_.begin(), body_.end(), [&](const ir::Stmt& stmt) {
    const auto* store = store_in(stmt);
    return store != nullptr && array(store->buffer) == &registers;
  });
}

Slice LaneLowering::packed(const Expr& e, const std::string& name, SourceLoc loc) {
  if (e->op == ir::Op::var) {
    if (const auto found = vectors_.find(e->var.get()); found != vectors_.end())
      return found->second;
    if (const auto found = changed_.find(e->var.get()); found != changed_.end())
      return found->second;
  }
  const Slice into = new_vector(name + "_pairs", e->type, loc);
  const auto same =
      e->op == ir::Op::var ? same_registers_.find(e->var.get()) : same_registers_.end();
  if (same != same_registers_.end() && done_.insert(same->second).second) {
    t_.load(*load_in(*same->second), same->second->loc);
  }
  if (same != same_registers_.end() || is_same_in_all_lanes(e)) {
    t_.unrolled("lane", width_, loc, [&](const Expr& lane) {
      Access at;
      at.array = into.array;
      at.offset = lane;
      t_.emit({Store{at, t_.resolve(e), {}}, loc});
    });
    return into;
  }
  Packed step{e->op, into, {}, static_cast<int>(width_)};
  for (const Expr& arg : e->args) step.args.push_back(packed(arg, name, loc));
  t_.emit({std::move(step), loc});
  return into;
}

void LaneLowering::store_vector(const Collected& c) {
  if (!c.packed.empty()) {
    t_.emit({Packed{c.element->value->op, c.values, c.packed, static_cast<int>(width_)}, c.loc});
  }
  if (c.wide.array) t_.emit({Convert{c.values, c.wide, static_cast<int>(width_)}, c.loc});
  if (in_registers(c.element->buffer)) return;
  const std::vector<Expr> indices = indices_of(*c.element);
  t_.when(t_.sole_owner_, c.loc, [&] {
    for (int64_t first = 0; first < width_; first += c.fits) {
      const Access to = t_.access(c.element->buffer, at_lane(indices, first),
                                  static_cast<int>(c.fits), c.element->terms, c.loc);
      if (c.adds) {
        Atomic sum{};
        sum.op = ir::AtomicOp::add;
        sum.to = to;
        sum.from = part(c.values, first);
        t_.emit({std::move(sum), c.loc});
      } else {
        t_.emit({Store{to, {}, part(c.values, first)}, c.loc});
      }
    }
  });
}

}  // namespace tessera::codegen
