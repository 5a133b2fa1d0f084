// TileLowering: parallel loops to slots of one thread, and runs of slots to vectors.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/passes/tile_lowering.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// Formats whose conversions come in pairs: worth collecting a vector before converting.
bool converts_in_pairs(DType to, DType from) {
  return from == DType::f32 && is_float(to) && to != DType::f32;
}

}  // namespace

void TileLowering::lower_parallel(const ir::Loop& loop, SourceLoc loc) {
  const layout::Layout& layout = plan_.loops.at(&loop);
  emit({Comment{loop.label.empty() ? "parallel" : loop.label}, loc});
  // Runs of at most 16 slots along the last axis are handled as one vector.
  int64_t vector = 1;
  for (const layout::Digit& digit : layout.digits()) {
    if (digit.axis + 1 == static_cast<int>(loop.vars.size()) && digit.div == 1 && digit.slot == 1) {
      vector = std::min<int64_t>(digit.extent & -digit.extent, 16);
    }
  }
  if (!is_straight_line(loop.body)) vector = 1;
  for_each_slot(layout, loop.extents, vector, loc, [&](const Iteration& it) {
    for (size_t axis = 0; axis < loop.vars.size(); ++axis) {
      values_[loop.vars[axis].get()] = it.coordinates[axis];
    }
    sole_owner_ = it.sole_owner;
    if (it.vector > 1) {
      lower_lanes(loop.body, it, loc, false);
    } else {
      lower_body(loop.body);
    }
    sole_owner_ = Expr();
    for (const VarRef& var : loop.vars) values_.erase(var.get());
  });
}

void TileLowering::for_each_slot(const layout::Layout& layout, const std::vector<Expr>& extents,
                                 int64_t vector, SourceLoc loc,
                                 const std::function<void(const Iteration&)>& body) {
  Iteration it;
  it.vector = vector;
  it.coordinates.assign(extents.size(), ir::index(0));
  auto digit_of_thread = [&](int64_t stride, int64_t extent) {
    return math_.simplify(thread() / ir::index(stride) % ir::index(extent));
  };
  // The part of each coordinate that the thread decides.
  int64_t used = 1;
  std::vector<layout::Digit> slots;
  for (const layout::Digit& digit : layout.digits()) {
    if (digit.thread == 0) {
      slots.push_back(digit);
      continue;
    }
    used *= digit.extent;
    Expr& coordinate = it.coordinates[static_cast<size_t>(digit.axis)];
    coordinate = coordinate + digit_of_thread(digit.thread, digit.extent) * ir::index(digit.div);
  }
  for (const layout::Replica& replica : layout.replicas()) {
    used *= replica.extent;
    const Expr first =
        ir::binary(ir::Op::eq, digit_of_thread(replica.thread, replica.extent), ir::index(0));
    it.sole_owner = it.sole_owner ? it.sole_owner && first : first;
  }
  Expr in_use;
  if (used < kernel_.threads) in_use = thread() < ir::index(used);

  // The part that the slot decides: one unrolled loop per digit, the largest stride outside.
  std::sort(slots.begin(), slots.end(),
            [](const auto& a, const auto& b) { return a.slot > b.slot; });
  std::function<void(size_t)> open = [&](size_t next) {
    if (next < slots.size()) {
      const layout::Digit& digit = slots[next];
      Expr& coordinate = it.coordinates[static_cast<size_t>(digit.axis)];
      const Expr before = coordinate;
      if (digit.slot == 1 && vector > 1) {
        unrolled("s", digit.extent / vector, loc, [&](const Expr& s) {
          it.lane = new_var("lane", DType::i32, ir::VarKind::loop, ir::index(0), ir::index(vector));
          coordinate = before + s * ir::index(vector) + ir::var(it.lane);
          open(next + 1);
        });
      } else {
        unrolled("s", digit.extent, loc, [&](const Expr& s) {
          coordinate = before + s * ir::index(digit.div);
          open(next + 1);
        });
      }
      it.coordinates[static_cast<size_t>(digit.axis)] = before;
      return;
    }
    Iteration ready = it;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      ready.coordinates[axis] = math_.simplify(it.coordinates[axis]);
      if (layout.padded_extent(static_cast<int>(axis)) > layout.shape()[axis] &&
          !math_.less(ready.coordinates[axis], extents[axis])) {
        // Extents and vectors divide: the first lane decides for the vector.
        Expr first = ready.coordinates[axis];
        if (it.lane) {
          first = ir::substitute(
              first, [&](const VarRef& var) { return var == it.lane ? ir::index(0) : Expr(); });
        }
        const Expr inside = math_.simplify(first) < extents[axis];
        ready.active = ready.active ? ready.active && inside : inside;
      }
    }
    if (in_use) ready.active = ready.active ? in_use && ready.active : in_use;
    when(ready.active, loc, [&] { body(ready); });
  };
  open(0);
}

bool TileLowering::is_straight_line(const ir::Body& body) const {
  return std::all_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    return std::holds_alternative<ir::Let>(stmt.node) ||
           std::holds_alternative<ir::ElementLoad>(stmt.node) ||
           std::holds_alternative<ir::ElementStore>(stmt.node);
  });
}

/// One vector of a straight-line body: vector loads, then one unrolled loop over the lanes, then
/// vector stores. Accesses that are not consecutive stay inside the lane loop, one element at a
/// time.
void TileLowering::lower_lanes(const ir::Body& body, const Iteration& it, SourceLoc loc,
                               bool contract) {
  const int64_t width = it.vector;
  const Expr lane = ir::var(it.lane);
  auto at_lane = [&](const Expr& e, int64_t value) {
    return ir::substitute(
        e, [&](const VarRef& var) { return var == it.lane ? ir::index(value) : Expr(); });
  };
  auto all_at_lane = [&](const std::vector<Expr>& list, int64_t value) {
    std::vector<Expr> result;
    for (const Expr& e : list) result.push_back(at_lane(e, value));
    return result;
  };
  auto depends_on_lane = [&](const std::vector<Expr>& list) {
    std::vector<VarRef> vars;
    for (const Expr& e : list) ir::collect_vars(e, vars);
    return std::find(vars.begin(), vars.end(), it.lane) != vars.end();
  };
  auto in_registers = [&](const ir::BufferRef& buffer) {
    return array_of(buffer)->space == ArraySpace::registers;
  };
  // Elements per instruction, 1 = lane by lane.
  auto vector_of = [&](const ir::BufferRef& buffer, const std::vector<Expr>& indices) {
    const int64_t fits = feasible_vector(math_, *buffer, indices, *it.lane, width);
    if (contract && fits < std::min<int64_t>(width, 128 / bits(buffer->dtype))) {
      fail("VEC_NOT_CONTIGUOUS", fmt::format("'{}' cannot be accessed as a vector", buffer->name),
           loc, fmt::format("{} aligned consecutive elements", width),
           fmt::format("{} at a time", fits),
           "declare multiple_of for the strides and extents involved, or use an unrolled loop");
    }
    return fits;
  };
  // First register of the vector, if its lanes are consecutive registers.
  auto register_run = [&](const ir::BufferRef& buffer, const std::vector<Expr>& indices) -> Expr {
    const Expr slot = register_slot(*buffer, indices, loc);
    const Expr first = math_.simplify(at_lane(slot, 0));
    return math_.same(slot, first + lane) ? first : Expr();
  };

  std::map<const ir::Var*, Slice> vectors;  // loaded as a whole: lane l in element l
  std::set<const Array*> stored;            // written so far: later reads stay in order
  std::set<const ir::Stmt*> hoisted;        // loads done before the lane loop
  for (const ir::Stmt& stmt : body) {
    if (const auto* target = std::get_if<ir::ElementStore>(&stmt.node)) {
      stored.insert(array_of(target->buffer).get());
    }
    const auto* element = std::get_if<ir::ElementLoad>(&stmt.node);
    if (element == nullptr || in_registers(element->buffer) ||
        stored.contains(array_of(element->buffer).get()))
      continue;
    const std::vector<Expr> indices = resolve(element->indices);
    if (!depends_on_lane(indices)) {
      // A value bound inside the lane loop cannot steer a load before it.
      bool bound_inside = false;
      std::vector<VarRef> vars;
      for (const Expr& e : indices) ir::collect_vars(e, vars);
      for (const ir::Stmt& other : body) {
        const auto* let = std::get_if<ir::Let>(&other.node);
        const auto* read = std::get_if<ir::ElementLoad>(&other.node);
        const VarRef bound = let != nullptr ? let->var : read != nullptr ? read->var : nullptr;
        bound_inside =
            bound_inside || (bound && std::find(vars.begin(), vars.end(), bound) != vars.end());
      }
      if (bound_inside || element->buffer->dtype == DType::e2m1) continue;
      load(*element, stmt.loc);
      hoisted.insert(&stmt);
      continue;
    }
    const int64_t fits = vector_of(element->buffer, indices);
    if (fits == 1) continue;
    // Straight into the fragment when the body only moves the value there.
    Slice target;
    for (const ir::Stmt& other : body) {
      const auto* use = std::get_if<ir::ElementStore>(&other.node);
      const bool plain_move = body.size() == 2 && use != nullptr && use->value->op == ir::Op::var &&
                              use->value->var == element->var && in_registers(use->buffer);
      if (!plain_move) continue;
      if (const Expr base = register_run(use->buffer, resolve(use->indices)))
        target = {array_of(use->buffer), base};
    }
    const bool direct = target.array != nullptr;
    if (!direct) {
      target = {
          new_registers(element->buffer->name + "_vec", element->buffer->dtype, width, stmt.loc),
          ir::index(0)};
      emit({Declare{target.array, false}, stmt.loc});
    }
    for (int64_t part = 0; part < width; part += fits) {
      Load node{access(element->buffer, all_at_lane(indices, part), static_cast<int>(fits),
                       element->unchecked, stmt.loc),
                {},
                {target.array, math_.simplify(target.base + ir::index(part))}};
      emit({std::move(node), stmt.loc});
    }
    if (direct) return;
    vectors[element->var.get()] = target;
    hoisted.insert(&stmt);
  }

  // Reads of consecutive registers that the body does not write are vectors already.
  for (const ir::Stmt& stmt : body) {
    const auto* element = std::get_if<ir::ElementLoad>(&stmt.node);
    if (element == nullptr || !in_registers(element->buffer)) continue;
    if (stored.contains(array_of(element->buffer).get())) continue;
    if (const Expr base = register_run(element->buffer, resolve(element->indices))) {
      vectors[element->var.get()] = {array_of(element->buffer), base};
    }
  }

  // Stores whose lanes are collected: the vector goes out, or is converted, after the lane loop.
  struct Collected {
    const ir::ElementStore* element = nullptr;
    SourceLoc loc;
    int64_t fits = 1;
    Slice values;        // of the stored dtype: goes to memory from here
    Slice wide;          // f32 to be converted into `values`
    bool whole = false;  // `values` is a loaded vector: nothing to do per lane
  };
  std::map<const ir::Stmt*, Collected> collected;
  for (const ir::Stmt& stmt : body) {
    const auto* element = std::get_if<ir::ElementStore>(&stmt.node);
    if (element == nullptr) continue;
    Collected c;
    c.element = element;
    c.loc = stmt.loc;
    const std::vector<Expr> indices = resolve(element->indices);
    const bool registers = in_registers(element->buffer);
    const Expr& value = element->value;
    const bool pairs =
        value->op == ir::Op::cast && converts_in_pairs(value->type, value->args[0]->type);
    if (registers) {
      const Expr base = pairs ? register_run(element->buffer, indices) : Expr();
      if (!base) continue;
      c.values = {array_of(element->buffer), base};
    } else {
      require_writable(*element->buffer, stmt.loc);
      c.fits = vector_of(element->buffer, indices);
      if (c.fits == 1) continue;
      const auto loaded = value->op == ir::Op::var ? vectors.find(value->var.get()) : vectors.end();
      if (loaded != vectors.end()) {
        c.values = loaded->second;
        c.whole = true;
      } else {
        c.values = {
            new_registers(element->buffer->name + "_vec", element->buffer->dtype, width, stmt.loc),
            ir::index(0)};
        emit({Declare{c.values.array, false}, stmt.loc});
      }
    }
    if (pairs) {
      c.wide = {new_registers(element->buffer->name + "_f32", DType::f32, width, stmt.loc),
                ir::index(0)};
      emit({Declare{c.wide.array, false}, stmt.loc});
    }
    collected[&stmt] = c;
  }

  Body lanes = nested([&] {
    for (const ir::Stmt& stmt : body) {
      if (const auto* element = std::get_if<ir::ElementLoad>(&stmt.node)) {
        const auto vector = vectors.find(element->var.get());
        if (vector != vectors.end()) {
          Access from;
          from.array = vector->second.array;
          from.offset = math_.simplify(vector->second.base + lane);
          emit({Load{from, element->var, {}}, stmt.loc});
          continue;
        }
        if (hoisted.contains(&stmt)) continue;
      }
      const auto found = collected.find(&stmt);
      if (found == collected.end()) {
        lower_stmt(stmt);
        continue;
      }
      const Collected& c = found->second;
      if (c.whole) continue;
      const Slice& into = c.wide.array ? c.wide : c.values;
      const Expr& value = c.element->value;
      Access to;
      to.array = into.array;
      to.offset = math_.simplify(into.base + lane);
      emit({Store{to, resolve(c.wide.array ? value->args[0] : value), {}}, stmt.loc});
    }
  });
  // A lane loop that only re-reads what a whole-vector store takes is empty work.
  const bool needed = std::any_of(lanes.begin(), lanes.end(), [](const Stmt& s) {
    return std::holds_alternative<Store>(s.node) || std::holds_alternative<If>(s.node);
  });
  if (needed) {
    For loop;
    loop.var = it.lane;
    loop.begin = ir::index(0);
    loop.end = ir::index(width);
    loop.step = ir::index(1);
    loop.unrolled = true;
    loop.body = std::move(lanes);
    emit({std::move(loop), loc});
  }

  for (const ir::Stmt& stmt : body) {
    const auto found = collected.find(&stmt);
    if (found == collected.end()) continue;
    const Collected& c = found->second;
    if (c.wide.array) emit({Convert{c.values, c.wide, static_cast<int>(width)}, c.loc});
    if (in_registers(c.element->buffer)) continue;
    const std::vector<Expr> indices = resolve(c.element->indices);
    when(sole_owner_, c.loc, [&] {
      for (int64_t part = 0; part < width; part += c.fits) {
        Store node{access(c.element->buffer, all_at_lane(indices, part), static_cast<int>(c.fits),
                          c.element->unchecked, c.loc),
                   {},
                   {c.values.array, math_.simplify(c.values.base + ir::index(part))}};
        emit({std::move(node), c.loc});
      }
    });
  }
}

}  // namespace tessera::codegen
