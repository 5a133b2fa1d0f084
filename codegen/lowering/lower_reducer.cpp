// TileLowering: reducers. The parts of a reducer are the replicas of a fragment, which differ until
// finalize folds them.

#include <fmt/format.h>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {

void TileLowering::reducer_init(const ir::ReducerInit& init, SourceLoc loc) {
  const ArrayRef parts = array_of(init.reducer);
  emit({Comment{fmt::format("reducer {} opens", parts->name)}, loc});
  fill(parts, reduction_identity(init.op, parts->dtype), loc);
}

void TileLowering::reducer_update(const ir::ReducerUpdate& update, SourceLoc loc) {
  const ir::Buffer& buffer = *update.reducer;
  const ArrayRef parts = array_of(update.reducer);
  const std::vector<Expr> indices = resolve(update.indices);
  const Expr value = resolve(update.value);
  check_indices(
      update.reducer, update.indices, {}, [&](const Expr& e) { return resolve(e); }, loc);
  // Several threads may run one iteration: only the first copy contributes.
  when(sole_owner_, loc, [&] {
    if (!is_wide(buffer)) {
      combine(update.op, {parts, register_slot(buffer, indices, loc)}, value, loc);
      return;
    }
    Expr element = ir::index(0);
    for (size_t d = 0; d < indices.size(); ++d) element = element * buffer.shape[d] + indices[d];
    element = math_.simplify(element);
    if (ir::is_constant(element)) {
      combine(update.op, {parts, element}, value, loc);
      return;
    }
    // Registers have no addresses: every element is compared with the index.
    const VarRef which = new_var(parts->name + "_element", element->type, ir::VarKind::value);
    emit({Let{which, element}, loc});
    const VarRef part = new_var(parts->name + "_part", parts->dtype, ir::VarKind::value);
    emit({Let{part, value}, loc});
    unrolled("e", parts->size, loc, [&](const Expr& e) {
      when(ir::binary(ir::Op::eq, ir::var(which), ir::cast(which->type, e)), loc, [&] {
        combine(update.op, {parts, e}, ir::var(part), loc);
      });
    });
  });
}

bool TileLowering::is_wide(const ir::Buffer& reducer) const {
  std::vector<int64_t> shape;
  for (const Expr& extent : reducer.shape) shape.push_back(extent->integer);
  return reducer.layout != nullptr &&
         layouts_.fragments.at(reducer.id) == layout::replicated(shape, group_.count);
}

void TileLowering::reducer_finalize(const ir::ReducerFinalize& finalize, SourceLoc loc) {
  const ArrayRef parts = array_of(finalize.reducer);
  emit({Comment{fmt::format("reducer {} closes", parts->name)}, loc});
  std::vector<layout::Digit> copies;
  for (const layout::Replica& replica : layouts_.fragments.at(finalize.reducer->id).replicas()) {
    copies.push_back({0, 1, replica.extent, replica.thread, 0});
  }
  const PartExchange exchange = exchange_of(copies);
  fold_lanes(finalize.op, exchange.masks, parts, parts->size, loc);
  fold_warps(finalize.op, exchange, parts, parts->size, loc);

  const auto total = [&](const Expr& part) {
    if (!finalize.start) return part;
    return ir::binary(reduction_op(finalize.op), resolve(finalize.start), part);
  };
  unrolled("s", parts->size, loc, [&](const Expr& s) {
    Access from;
    from.array = parts;
    from.offset = s;
    const VarRef part = new_var(parts->name + "_total", parts->dtype, ir::VarKind::value);
    emit({Load{from, part, {}}, loc});
    if (!finalize.to) {
      emit({Let{finalize.value, total(ir::var(part))}, loc});
      if (!finalize.start) result_.uniform.push_back(finalize.value);
      return;
    }
    Access to;
    to.array = array_of(finalize.to);
    to.offset = s;
    emit({Store{to, total(ir::var(part)), {}}, loc});
  });
}

}  // namespace tessera::codegen
