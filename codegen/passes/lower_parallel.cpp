// TileLowering: parallel loops to slots of one thread.

#include <algorithm>

#include "codegen/passes/tile_lowering.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// Neighbours along the last axis in one thread, wherever their registers are.
bool is_run(const layout::Digit& digit, size_t rank) {
  return digit.axis + 1 == static_cast<int>(rank) && digit.div == 1 && digit.slot > 0;
}

/// The branch that all there is to do for an element stands in, if it does not depend on `lane`:
/// nor does anything before it, which only reads.
const ir::If* shared_branch(const ir::Body& body, const VarRef& lane) {
  std::vector<VarRef> vars;
  for (const ir::Stmt& stmt : body) {
    if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
      for (const Expr& index : load->indices) ir::collect_vars(index, vars);
    } else if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
      ir::collect_vars(let->value, vars);
    } else if (&stmt != &body.back()) {
      return nullptr;
    }
  }
  const auto* branch = body.empty() ? nullptr : std::get_if<ir::If>(&body.back().node);
  if (branch == nullptr) return nullptr;
  ir::collect_vars(branch->condition, vars);
  return std::find(vars.begin(), vars.end(), lane) == vars.end() ? branch : nullptr;
}

}  // namespace

void TileLowering::lower_parallel(const ir::Loop& loop, SourceLoc loc) {
  const layout::Layout& layout = plan_.loops.at(&loop);
  emit({Comment{loop.label.empty() ? "parallel" : loop.label}, loc});
  if (loop.mode != ir::CopyMode::plain &&
      std::get<ir::ElementLoad>(loop.body[0].node).terms.whole_rows) {
    return lower_rows(loop, loc);
  }
  // Runs of at most 16 elements are handled as one vector.
  int64_t vector = 1;
  for (const layout::Digit& digit : layout.digits()) {
    if (is_run(digit, loop.vars.size())) {
      vector = std::min<int64_t>(digit.extent & -digit.extent, 16);
      while (layout.shape().back() % vector != 0) vector /= 2;
    }
  }
  const ir::If* const branch = shared_branch(loop.body, loop.vars.back());
  const bool straight = branch != nullptr
                            ? is_straight_line(branch->then) && is_straight_line(branch->otherwise)
                            : is_straight_line(loop.body);
  if (!straight) vector = 1;
  const bool first_copy_only = plan_.copies.at(&loop) == Copies::first;
  for_each_slot(layout, loop.extents, vector, loc, [&](const Iteration& iteration) {
    Iteration it = iteration;
    for (size_t axis = 0; axis < loop.vars.size(); ++axis) {
      values_[loop.vars[axis].get()] = it.coordinates[axis];
    }
    const Expr alone = first_copy_only ? it.sole_owner : Expr();
    if (alone) it.sole_owner = Expr();
    sole_owner_ = it.sole_owner;
    when(alone, loc, [&] {
      if (loop.mode != ir::CopyMode::plain && lower_async(loop, it, loc)) {
        // done
      } else if (it.vector > 1 && branch != nullptr) {  // once around all lanes
        lower_body({loop.body.begin(), loop.body.end() - 1});
        lower_branch(*branch, loc,
                     [&](const ir::Body& body) { lower_lanes(body, it, loc, false); });
      } else if (it.vector > 1) {
        lower_lanes(loop.body, it, loc, false);
      } else {
        lower_body(loop.body);
      }
    });
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

  // The part that the slot decides: one unrolled loop per digit, the largest stride outside, the
  // vector inside.
  const auto is_vector = [&](const layout::Digit& digit) {
    return vector > 1 && is_run(digit, extents.size());
  };
  std::sort(slots.begin(), slots.end(), [&](const auto& a, const auto& b) {
    return is_vector(a) != is_vector(b) ? is_vector(b) : a.slot > b.slot;
  });
  std::function<void(size_t)> open = [&](size_t next) {
    if (next < slots.size()) {
      const layout::Digit& digit = slots[next];
      Expr& coordinate = it.coordinates[static_cast<size_t>(digit.axis)];
      const Expr before = coordinate;
      if (is_vector(digit)) {
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
           std::holds_alternative<ir::ElementStore>(stmt.node) ||
           std::holds_alternative<ir::Atomic>(stmt.node) ||
           std::holds_alternative<ir::ReducerUpdate>(stmt.node);
  });
}

}  // namespace tessera::codegen
