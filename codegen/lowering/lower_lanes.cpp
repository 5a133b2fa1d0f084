// Lowers one vector of a straight-line body: vector loads, one unrolled loop over the lanes,
// conversions in pairs, vector stores (lane_stores.cpp). Accesses that are not consecutive stay
// inside the lane loop, element by element.

#include <fmt/format.h>

#include "codegen/layouts/layout_cost.h"
#include "codegen/layouts/vector_width.h"
#include "codegen/lowering/lane_lowering.h"
#include "codegen/thread_ir/effects.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {

void LaneLowering::lower() {
  for (const ir::Stmt& stmt : body_) {
    const auto* let = std::get_if<ir::Let>(&stmt.node);
    if (let != nullptr && is_integer(let->var->type)) {
      t_.math_.define(let->var, t_.resolve(expand(let->value)));
      lets_[let->var.get()] = expand(let->value);
    }
    const auto* atomic = std::get_if<ir::Atomic>(&stmt.node);
    if (atomic != nullptr && is_sum(*atomic) && has_wide_form(*atomic)) {
      sums_[&stmt] = {atomic->buffer, atomic->indices, atomic->value, atomic->terms};
    }
  }
  note_order();
  for (const ir::Stmt& stmt : body_) {
    if (load_in(stmt) != nullptr && load_ahead(stmt)) return;
  }
  for (const ir::Stmt& stmt : body_) {
    if (stored_by(stmt) != nullptr) collect(stmt);
  }
  lane_loop();
  for (const ir::Stmt& stmt : body_) {
    const auto found = collected_.find(&stmt);
    if (found != collected_.end()) store_vector(found->second);
  }
}

bool LaneLowering::in_registers(const ir::BufferRef& buffer) const {
  return array(buffer)->space == ArraySpace::registers;
}

void LaneLowering::note_order() {
  std::set<int> written;
  std::map<int, const ir::ElementStore*> first;
  for (const ir::Stmt& stmt : body_) {
    if (const auto* store = stored_by(stmt)) {
      const int memory = memory_of(*store->buffer);
      written.insert(memory);
      const auto [before, is_first] = first.try_emplace(memory, store);
      if (!is_first && !same_or_apart(*before->second, *store)) in_order_.insert(memory);
    }
    const auto* atomic = std::get_if<ir::Atomic>(&stmt.node);
    if (atomic != nullptr && !sums_.contains(&stmt)) {
      written.insert(memory_of(*atomic->buffer));
      in_order_.insert(memory_of(*atomic->buffer));
    }
    const auto* load = load_in(stmt);
    if (load != nullptr && written.contains(memory_of(*load->buffer)))
      in_order_.insert(memory_of(*load->buffer));
  }
  written_ = std::move(written);
}

bool LaneLowering::same_or_apart(const ir::ElementStore& a, const ir::ElementStore& b) const {
  if (a.buffer->id != b.buffer->id) return false;
  const std::vector<Expr> left = indices_of(a);
  const std::vector<Expr> right = indices_of(b);
  bool same = true;
  for (size_t d = 0; d < left.size(); ++d) {
    const Form gap =
        IndexMath::add(t_.math_.form(left[d], true), t_.math_.form(right[d], true), -1);
    if (gap.is_constant() && gap.constant != 0) return true;
    same = same && gap.is_constant();
  }
  return same;
}

Expr LaneLowering::expand(const Expr& e) const {
  return ir::substitute(e, [&](const VarRef& var) {
    const auto found = lets_.find(var.get());
    return found == lets_.end() ? Expr() : found->second;
  });
}

std::vector<Expr> LaneLowering::expand(const std::vector<Expr>& list) const {
  std::vector<Expr> result;
  for (const Expr& e : list) result.push_back(expand(e));
  return result;
}

Expr LaneLowering::at_lane(const Expr& e, int64_t lane) const {
  return ir::substitute(e,
                        [&](const VarRef& var) { return var == lane_ ? ir::index(lane) : Expr(); });
}

std::vector<Expr> LaneLowering::at_lane(const std::vector<Expr>& list, int64_t lane) const {
  std::vector<Expr> result;
  for (const Expr& e : list) result.push_back(at_lane(e, lane));
  return result;
}

int64_t LaneLowering::feasible(const ir::BufferRef& buffer,
                               const std::vector<Expr>& indices) const {
  return in_order_.contains(memory_of(*buffer)) || !is_known_ahead(indices)
             ? 1
             : feasible_vector(t_.math_, *buffer, indices, *lane_, width_);
}

int64_t LaneLowering::vector_of(const ir::BufferRef& buffer,
                                const std::vector<Expr>& indices) const {
  const int64_t fits = feasible(buffer, indices);
  if (contract_ && fits < std::min<int64_t>(width_, 128 / bits(buffer->dtype))) {
    t_.fail("VEC_NOT_CONTIGUOUS", fmt::format("'{}' cannot be accessed as a vector", buffer->name),
            loc_, fmt::format("{} aligned consecutive elements", width_),
            fmt::format("{} at a time", fits),
            "declare multiple_of for the strides and extents involved, or use an unrolled loop");
  }
  return fits;
}

Slice LaneLowering::register_run(const ir::BufferRef& buffer,
                                 const std::vector<Expr>& indices) const {
  if (in_order_.contains(memory_of(*buffer)) || buffer->dynamic) return {};
  const Expr slot = t_.register_slot(*buffer, t_.resolve(expand(indices)), loc_);
  const Expr first = t_.math_.simplify(at_lane(slot, 0));
  if (!t_.math_.same(slot, first + ir::var(lane_))) return {};
  return {t_.array_of(buffer), first};
}

bool LaneLowering::is_one_register(const ir::ElementLoad& element) const {
  if (written_.contains(memory_of(*element.buffer))) return false;
  const Expr slot = t_.register_slot(*element.buffer, t_.resolve(expand(element.indices)), loc_);
  return t_.math_.same(slot, t_.math_.simplify(at_lane(slot, 0)));
}

const ir::Var* LaneLowering::bound_by(const ir::Stmt& stmt) {
  const ir::Var* bound = nullptr;
  for_each_binding(stmt, [&](const VarRef& var, const Expr*) { bound = var.get(); });
  return bound;
}

bool LaneLowering::use(const std::vector<Expr>& indices, const ir::Var* value) {
  std::vector<VarRef> vars;
  for (const Expr& e : indices) ir::collect_vars(e, vars);
  return value != nullptr && std::any_of(vars.begin(), vars.end(),
                                         [&](const VarRef& var) { return var.get() == value; });
}

bool LaneLowering::varies(const std::vector<Expr>& indices) const {
  return use(indices, lane_.get()) ||
         std::any_of(body_.begin(), body_.end(),
                     [&](const ir::Stmt& stmt) { return use(indices, bound_by(stmt)); });
}

bool LaneLowering::is_known_ahead(const std::vector<Expr>& indices) const {
  return std::all_of(body_.begin(), body_.end(), [&](const ir::Stmt& stmt) {
    const ir::Var* value = bound_by(stmt);
    if (!use(indices, value) || same_registers_.contains(value)) return true;
    return done_.contains(&stmt) && !vectors_.contains(value);
  });
}

void LaneLowering::load_values_of(const std::vector<Expr>& indices) {
  for (const ir::Stmt& stmt : body_) {
    const ir::Var* value = bound_by(stmt);
    if (!use(indices, value) || !same_registers_.contains(value)) continue;
    if (done_.insert(&stmt).second) t_.load(*load_in(stmt), stmt.loc);
  }
}

Slice LaneLowering::new_vector(const std::string& name, DType dtype, SourceLoc loc) {
  Slice slice{t_.new_registers(name, dtype, width_, loc), ir::index(0)};
  t_.emit({Declare{slice.array, false}, loc});
  return slice;
}

Slice LaneLowering::part(const Slice& slice, int64_t first) const {
  return {slice.array, t_.math_.simplify(slice.base + ir::index(first))};
}

Access LaneLowering::element_of(const Slice& slice) const {
  Access access;
  access.array = slice.array;
  access.offset = t_.math_.simplify(slice.base + ir::var(lane_));
  return access;
}

bool LaneLowering::load_ahead(const ir::Stmt& stmt) {
  const ir::ElementLoad& element = *load_in(stmt);
  if (in_registers(element.buffer)) {
    const Slice run = register_run(element.buffer, element.indices);
    if (!run.array) {
      if (is_one_register(element)) same_registers_[element.var.get()] = &stmt;
      return false;
    }
    check_lanes(element, stmt.loc);
    (written_.contains(memory_of(*element.buffer)) ? changed_ : vectors_)[element.var.get()] = run;
    return false;
  }
  const std::vector<Expr> indices = indices_of(element);
  if (in_order_.contains(memory_of(*element.buffer))) {
    vector_of(element.buffer, indices);  // reports a violated vectorized()
    return false;
  }
  if (!varies(indices)) {
    if (element.buffer->dtype == DType::e2m1) return false;
    t_.load(element, stmt.loc);
    done_.insert(&stmt);
    return false;
  }
  const int64_t fits = vector_of(element.buffer, indices);
  if (fits == 1) return false;
  load_values_of(indices);
  check_lanes(element, stmt.loc);
  const Slice own = moved_into(element);
  if (own.array) check_lanes(*store_in(body_[1]), body_[1].loc);
  const Slice into =
      own.array ? own : new_vector(element.buffer->name + "_vec", element.buffer->dtype, stmt.loc);
  for (int64_t first = 0; first < width_; first += fits) {
    const Access from = t_.access(element.buffer, at_lane(indices, first), static_cast<int>(fits),
                                  element.terms, stmt.loc);
    t_.emit({Load{from, {}, part(into, first)}, stmt.loc});
  }
  vectors_[element.var.get()] = into;
  done_.insert(&stmt);
  return own.array != nullptr;
}

Slice LaneLowering::moved_into(const ir::ElementLoad& element) const {
  const ir::ElementStore* store = body_.size() == 2 ? store_in(body_[1]) : nullptr;
  const bool moves = store != nullptr && store->value->op == ir::Op::var &&
                     store->value->var == element.var && in_registers(store->buffer);
  return moves ? register_run(store->buffer, store->indices) : Slice{};
}

void LaneLowering::lane_loop() {
  For loop;
  loop.var = lane_;
  loop.begin = ir::index(0);
  loop.end = ir::index(width_);
  loop.step = ir::index(1);
  loop.unrolled = true;
  loop.body = t_.nested([&] {
    for (const ir::Stmt& stmt : body_) one_lane(stmt);
  });
  // A loop that only re-reads a whole vector is dead.
  if (std::any_of(loop.body.begin(), loop.body.end(), outlives_its_values))
    t_.emit({std::move(loop), loc_});
}

void LaneLowering::one_lane(const ir::Stmt& stmt) {
  if (const auto* load = load_in(stmt)) {
    const auto vector = vectors_.find(load->var.get());
    if (vector != vectors_.end()) {
      t_.emit({Load{element_of(vector->second), load->var, {}}, stmt.loc});
      return;
    }
    if (done_.contains(&stmt)) return;
  }
  const auto found = collected_.find(&stmt);
  if (found == collected_.end()) {
    t_.lower_stmt(stmt);
    return;
  }
  const Collected& c = found->second;
  if (c.whole || c.given || !c.packed.empty()) return;
  const Expr& value = c.element->value;
  if (c.wide.array) {
    t_.emit({Store{element_of(c.wide), t_.resolve(value->args[0]), {}}, stmt.loc});
  } else {
    t_.emit({Store{element_of(c.values), t_.resolve(value), {}}, stmt.loc});
  }
}

void TileLowering::lower_lanes(const ir::Body& body, const Iteration& it, SourceLoc loc,
                               bool contract) {
  LaneLowering(*this, body, it, loc, contract).lower();
}

}  // namespace tessera::codegen
