// TileLowering: maps parallel loops to the slots of one thread.

#include <algorithm>

#include "codegen/layouts/vector_width.h"
#include "codegen/lowering/tile_lowering.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
void TileLowering::lower_parallel(const ir::Loop& loop, SourceLoc loc) {
  const LoopLayout& plan = layouts_.loops.at(loop_id(loop));
  emit({Comment{loop.label.empty() ? "parallel" : loop.label}, loc});
  if (loop.plan && loop.plan->engine == ir::Engine::bulk) return lower_bulk(loop, loc);
  const ir::If* const branch = shared_branch(loop);
  note_single_sums(loop.body, plan.vector);
  const bool first_copy_only = plan.copies == Copies::first;
  for_each_slot(plan.layout, loop.extents, plan.vector, loc, [&](const Iteration& iteration) {
    Iteration it = iteration;
    for (size_t axis = 0; axis < loop.vars.size(); ++axis) {
      values_[loop.vars[axis].get()] = it.coordinates[axis];
    }
    const Expr alone = first_copy_only ? it.sole_owner : Expr();
    if (alone) it.sole_owner = Expr();
    sole_owner_ = it.sole_owner;
    when(alone, loc, [&] {
      if (is_in_pieces(loop)) {
        lower_pieces(loop, it, loc);
      } else if (it.vector > 1 && branch != nullptr) {  // evaluated once for all lanes
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
  // The thread's part of each coordinate.
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
  if (used < group_.count) in_use = thread() < ir::index(used);

  // The slot's part: one unrolled loop per digit, the largest stride outermost, the vector
  // innermost.
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
        // Vectors divide extents: the first lane decides for the whole vector.
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

}  // namespace tessera::codegen
