// One vector of a straight-line body: vector loads, one unrolled loop over the lanes, conversions
// in pairs, vector stores. Accesses that are not consecutive stay inside the lane loop, one element
// at a time.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/layouts/layout_cost.h"
#include "codegen/lowering/tile_lowering.h"
#include "codegen/thread_ir/effects.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// Formats whose conversions come in pairs: worth collecting a vector before converting.
bool converts_in_pairs(DType to, DType from) {
  if (from == DType::f16) return to == DType::e2m1;
  if (from == DType::e4m3) return to == DType::f16;
  return from == DType::f32 && is_float(to) && to != DType::f32;
}

bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

bool has_packed_form(ir::Op op) {
  return op == ir::Op::add || op == ir::Op::sub || op == ir::Op::mul || op == ir::Op::min ||
         op == ir::Op::max || op == ir::Op::abs;
}

const ir::ElementLoad* load_in(const ir::Stmt& stmt) {
  return std::get_if<ir::ElementLoad>(&stmt.node);
}
const ir::ElementStore* store_in(const ir::Stmt& stmt) {
  return std::get_if<ir::ElementStore>(&stmt.node);
}

}  // namespace

class LaneLowering {
 public:
  LaneLowering(TileLowering& tiles, const ir::Body& body, const TileLowering::Iteration& it,
               SourceLoc loc, bool contract)
      : t_(tiles), body_(body), lane_(it.lane), width_(it.vector), loc_(loc), contract_(contract) {}

  void lower() {
    for (const ir::Stmt& stmt : body_) {
      const auto* let = std::get_if<ir::Let>(&stmt.node);
      if (let != nullptr && is_integer(let->var->type)) {
        t_.math_.define(let->var, t_.resolve(expand(let->value)));
        lets_[let->var.get()] = expand(let->value);
      }
    }
    note_order();
    for (const ir::Stmt& stmt : body_) {
      if (load_in(stmt) != nullptr && load_ahead(stmt)) return;
    }
    for (const ir::Stmt& stmt : body_) {
      if (store_in(stmt) != nullptr) collect(stmt);
    }
    lane_loop();
    for (const ir::Stmt& stmt : body_) {
      const auto found = collected_.find(&stmt);
      if (found != collected_.end()) store_vector(found->second);
    }
  }

 private:
  /// A store whose lanes are gathered first.
  struct Collected {
    const ir::ElementStore* element = nullptr;
    SourceLoc loc;
    int64_t fits = 1;           // elements per instruction
    Slice values;               // of the stored dtype: goes to memory from here
    Slice wide;                 // to be converted into `values`
    bool given = false;         // `wide` is a vector already
    std::vector<Slice> packed;  // arguments of the operation on pairs that gives `values`
    bool whole = false;         // `values` is a vector already: nothing to do per lane
  };

  // ---- facts

  const Array* array(const ir::BufferRef& buffer) const { return t_.array_of(buffer).get(); }
  bool in_registers(const ir::BufferRef& buffer) const {
    return array(buffer)->space == ArraySpace::registers;
  }

  /// Arrays that the body writes and then reads, or writes again at what may be the same place: their
  /// accesses stay in order, lane by lane.
  void note_order() {
    std::set<int> written;
    std::map<int, const ir::ElementStore*> first;
    for (const ir::Stmt& stmt : body_) {
      if (const auto* store = store_in(stmt)) {
        const int memory = memory_of(*store->buffer);
        written.insert(memory);
        const auto [before, is_first] = first.try_emplace(memory, store);
        if (!is_first && !same_or_apart(*before->second, *store)) in_order_.insert(memory);
      }
      if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) {
        written.insert(memory_of(*atomic->buffer));
        in_order_.insert(memory_of(*atomic->buffer));
      }
      const auto* load = load_in(stmt);
      if (load != nullptr && written.contains(memory_of(*load->buffer)))
        in_order_.insert(memory_of(*load->buffer));
    }
    written_ = std::move(written);
  }

  /// True if two stores of one lane are known to go to the same element, or to different ones.
  bool same_or_apart(const ir::ElementStore& a, const ir::ElementStore& b) const {
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

  /// The same without the body's own integer lets: these are bound inside the lane loop only.
  Expr expand(const Expr& e) const {
    return ir::substitute(e, [&](const VarRef& var) {
      const auto found = lets_.find(var.get());
      return found == lets_.end() ? Expr() : found->second;
    });
  }
  std::vector<Expr> expand(const std::vector<Expr>& list) const {
    std::vector<Expr> result;
    for (const Expr& e : list) result.push_back(expand(e));
    return result;
  }
  template <class Element>  // ElementLoad or ElementStore
  std::vector<Expr> indices_of(const Element& element) const {
    return t_.resolve(expand(element.indices));
  }

  Expr at_lane(const Expr& e, int64_t lane) const {
    return ir::substitute(
        e, [&](const VarRef& var) { return var == lane_ ? ir::index(lane) : Expr(); });
  }
  std::vector<Expr> at_lane(const std::vector<Expr>& list, int64_t lane) const {
    std::vector<Expr> result;
    for (const Expr& e : list) result.push_back(at_lane(e, lane));
    return result;
  }

  /// Elements per instruction, 1 = lane by lane.
  int64_t vector_of(const ir::BufferRef& buffer, const std::vector<Expr>& indices) const {
    const int64_t fits = in_order_.contains(memory_of(*buffer)) || !is_known_ahead(indices)
                             ? 1
                             : feasible_vector(t_.math_, *buffer, indices, *lane_, width_);
    if (contract_ && fits < std::min<int64_t>(width_, 128 / bits(buffer->dtype))) {
      t_.fail("VEC_NOT_CONTIGUOUS",
              fmt::format("'{}' cannot be accessed as a vector", buffer->name), loc_,
              fmt::format("{} aligned consecutive elements", width_),
              fmt::format("{} at a time", fits),
              "declare multiple_of for the strides and extents involved, or use an unrolled loop");
    }
    return fits;
  }

  /// The registers of a fragment or local buffer that the lanes name, if they are consecutive.
  Slice register_run(const ir::BufferRef& buffer, const std::vector<Expr>& indices) const {
    if (in_order_.contains(memory_of(*buffer))) return {};
    const Expr slot = t_.register_slot(*buffer, t_.resolve(expand(indices)), loc_);
    const Expr first = t_.math_.simplify(at_lane(slot, 0));
    if (!t_.math_.same(slot, first + ir::var(lane_))) return {};
    return {t_.array_of(buffer), first};
  }

  /// True if all lanes read the same register and none writes its array.
  bool is_one_register(const ir::ElementLoad& element) const {
    if (written_.contains(memory_of(*element.buffer))) return false;
    const Expr slot = t_.register_slot(*element.buffer, t_.resolve(expand(element.indices)), loc_);
    return t_.math_.same(slot, t_.math_.simplify(at_lane(slot, 0)));
  }

  /// The value that a statement of the body binds inside the lane loop, or null.
  static const ir::Var* bound_by(const ir::Stmt& stmt) {
    const ir::Var* bound = nullptr;
    for_each_binding(stmt, [&](const VarRef& var, const Expr*) { bound = var.get(); });
    return bound;
  }
  static bool use(const std::vector<Expr>& indices, const ir::Var* value) {
    std::vector<VarRef> vars;
    for (const Expr& e : indices) ir::collect_vars(e, vars);
    return value != nullptr && std::any_of(vars.begin(), vars.end(),
                                           [&](const VarRef& var) { return var.get() == value; });
  }

  /// True if an index uses the lane, or a value that is bound inside the lane loop.
  bool varies(const std::vector<Expr>& indices) const {
    return use(indices, lane_.get()) ||
           std::any_of(body_.begin(), body_.end(),
                       [&](const ir::Stmt& stmt) { return use(indices, bound_by(stmt)); });
  }

  /// True if what the indices use of the body is one value for all lanes that can be loaded before
  /// the lane loop.
  bool is_known_ahead(const std::vector<Expr>& indices) const {
    return std::all_of(body_.begin(), body_.end(), [&](const ir::Stmt& stmt) {
      const ir::Var* value = bound_by(stmt);
      if (!use(indices, value) || same_registers_.contains(value)) return true;
      return done_.contains(&stmt) && !vectors_.contains(value);
    });
  }
  /// Loads the registers among these values.
  void load_values_of(const std::vector<Expr>& indices) {
    for (const ir::Stmt& stmt : body_) {
      const ir::Var* value = bound_by(stmt);
      if (!use(indices, value) || !same_registers_.contains(value)) continue;
      if (done_.insert(&stmt).second) t_.load(*load_in(stmt), stmt.loc);
    }
  }

  Slice new_vector(const std::string& name, DType dtype, SourceLoc loc) {
    Slice slice{t_.new_registers(name, dtype, width_, loc), ir::index(0)};
    t_.emit({Declare{slice.array, false}, loc});
    return slice;
  }
  Slice part(const Slice& slice, int64_t first) const {
    return {slice.array, t_.math_.simplify(slice.base + ir::index(first))};
  }
  Access element_of(const Slice& slice) const {
    Access access;
    access.array = slice.array;
    access.offset = t_.math_.simplify(slice.base + ir::var(lane_));
    return access;
  }

  /// The checks of all lanes of an access that is made as a whole.
  template <class Element>
  void check_lanes(const Element& element, SourceLoc loc) {
    const auto any_lane = [&](const Expr& e) { return t_.resolve(expand(e)); };
    const Body checks = t_.nested([&] { t_.check_indices(element, any_lane, loc); });
    if (checks.empty()) return;
    t_.unrolled("lane", width_, loc, [&](const Expr& lane) {
      t_.check_indices(
          element,
          [&](const Expr& e) {
            return ir::substitute(any_lane(e),
                                  [&](const VarRef& var) { return var == lane_ ? lane : Expr(); });
          },
          loc);
    });
  }

  // ---- steps

  /// Loads before the lane loop what can be. True if that was all the body does.
  bool load_ahead(const ir::Stmt& stmt) {
    const ir::ElementLoad& element = *load_in(stmt);
    if (in_registers(element.buffer)) {
      const Slice run = register_run(element.buffer, element.indices);
      if (!run.array) {
        if (is_one_register(element)) same_registers_[element.var.get()] = &stmt;
        return false;
      }
      check_lanes(element, stmt.loc);
      (written_.contains(memory_of(*element.buffer)) ? changed_ : vectors_)[element.var.get()] =
          run;
      return false;
    }
    const std::vector<Expr> indices = indices_of(element);
    if (in_order_.contains(memory_of(*element.buffer))) {
      vector_of(element.buffer, indices);  // a contract fails here
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
        own.array ? own
                  : new_vector(element.buffer->name + "_vec", element.buffer->dtype, stmt.loc);
    for (int64_t first = 0; first < width_; first += fits) {
      const Access from = t_.access(element.buffer, at_lane(indices, first), static_cast<int>(fits),
                                    element.terms, stmt.loc);
      t_.emit({Load{from, {}, part(into, first)}, stmt.loc});
    }
    vectors_[element.var.get()] = into;
    done_.insert(&stmt);
    return own.array != nullptr;
  }

  /// The registers that a body of one load and one store moves the value into.
  Slice moved_into(const ir::ElementLoad& element) const {
    const ir::ElementStore* store = body_.size() == 2 ? store_in(body_[1]) : nullptr;
    const bool moves = store != nullptr && store->value->op == ir::Op::var &&
                       store->value->var == element.var && in_registers(store->buffer);
    return moves ? register_run(store->buffer, store->indices) : Slice{};
  }

  void collect(const ir::Stmt& stmt) {
    const ir::ElementStore& element = *store_in(stmt);
    const Expr& value = element.value;
    const bool pairs =
        value->op == ir::Op::cast && converts_in_pairs(value->type, value->args[0]->type);
    Collected c;
    c.element = &element;
    c.loc = stmt.loc;
    const bool packs = width_ % 2 == 0 && is_half(value->type) && has_packed_form(value->op) &&
                       can_pack(value, element);
    if (in_registers(element.buffer)) {
      if (pairs || packs) c.values = register_run(element.buffer, element.indices);
      if (!c.values.array) return;
      check_lanes(element, stmt.loc);
    } else {
      t_.require_writable(*element.buffer, stmt.loc);
      const std::vector<Expr> indices = indices_of(element);
      c.fits = vector_of(element.buffer, indices);
      if (c.fits == 1) return;
      load_values_of(indices);
      check_lanes(element, stmt.loc);
      const auto vector =
          value->op == ir::Op::var ? vectors_.find(value->var.get()) : vectors_.end();
      c.whole = vector != vectors_.end();
      c.values = c.whole
                     ? vector->second
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

  // ---- two 16-bit floats at a time

  /// True if all lanes of a 16-bit float are in registers, or are the result of operations on pairs
  /// of such. `target` is where the result goes: its own registers may take part if nothing else
  /// writes them.
  bool can_pack(const Expr& e, const ir::ElementStore& target) const {
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
  bool is_same_in_all_lanes(const Expr& e) const {
    std::vector<VarRef> vars;
    ir::collect_vars(t_.resolve(e), vars);
    return std::none_of(vars.begin(), vars.end(), [](const VarRef& var) {
      return var->kind == ir::VarKind::loop || var->kind == ir::VarKind::value;
    });
  }
  std::ptrdiff_t stores_to(const Array& registers) const {
    return std::count_if(body_.begin(), body_.end(), [&](const ir::Stmt& stmt) {
      const auto* store = store_in(stmt);
      return store != nullptr && array(store->buffer) == &registers;
    });
  }

  /// The lanes of an expression that can_pack.
  Slice packed(const Expr& e, const std::string& name, SourceLoc loc) {
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

  void lane_loop() {
    For loop;
    loop.var = lane_;
    loop.begin = ir::index(0);
    loop.end = ir::index(width_);
    loop.step = ir::index(1);
    loop.unrolled = true;
    loop.body = t_.nested([&] {
      for (const ir::Stmt& stmt : body_) one_lane(stmt);
    });
    // A loop that only re-reads what a whole vector holds is empty work.
    if (std::any_of(loop.body.begin(), loop.body.end(), outlives_its_values))
      t_.emit({std::move(loop), loc_});
  }

  void one_lane(const ir::Stmt& stmt) {
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

  void store_vector(const Collected& c) {
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
        t_.emit({Store{to, {}, part(c.values, first)}, c.loc});
      }
    });
  }

  TileLowering& t_;
  const ir::Body& body_;
  const VarRef lane_;
  const int64_t width_;
  const SourceLoc loc_;
  const bool contract_;                      // every memory access must be one vector
  std::map<const ir::Var*, Expr> lets_;      // integer values of the body, without lets
  std::set<int> written_, in_order_;         // of memory_of()
  std::map<const ir::Var*, Slice> vectors_;  // loaded as a whole: lane l in element l
  std::map<const ir::Var*, Slice> changed_;  // the same of registers that the body writes
  std::map<const ir::Var*, const ir::Stmt*> same_registers_;  // loads of one register for all lanes
  std::set<const ir::Stmt*> done_;                            // loads done before the lane loop
  std::map<const ir::Stmt*, Collected> collected_;
};

void TileLowering::lower_lanes(const ir::Body& body, const Iteration& it, SourceLoc loc,
                               bool contract) {
  LaneLowering(*this, body, it, loc, contract).lower();
}

}  // namespace tessera::codegen
