// TileLowering: tensor stores of shared tiles to boxes of a tensor, and waits for them.

#include <fmt/format.h>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {

void TileLowering::lower_tensor_store(const ir::Copy& copy, SourceLoc loc) {
  const ir::Buffer& tensor = *copy.to.buffer;
  require_writable(tensor, loc);
  const auto at = [&](const Expr& e) { return resolve(e); };
  for (const ir::Region* side : {&copy.from, &copy.to}) {
    check_indices(side->buffer, side->offsets, side->terms.tile_indices, at, loc);
  }
  TensorStore store;
  std::vector<int64_t> box;
  // A store at a negative coordinate faults; choose_copies knows that such a box is wholly outside.
  Expr is_started;
  if (group_.count > kThreadsPerWarp) is_started = thread() < ir::index(kThreadsPerWarp);
  for (size_t d = 0; d < copy.to.offsets.size(); ++d) {
    const Expr& extent = copy.to.extents[d];
    box.push_back(extent ? extent->integer : 1);
    const Expr first = math_.simplify(resolve(copy.to.offsets[d]));
    if (!math_.non_negative(first)) {
      const Expr is_inside = ir::binary(ir::Op::le, ir::index(0), first);
      is_started = is_started ? is_started && is_inside : is_inside;
    }
    store.coordinates.push_back(coordinate_of(first, tensor.shape[d]));
  }
  store.map = map_of_tile(copy.to.buffer, std::move(box));
  const int piece = 128 / bits(tensor.dtype);
  store.from = access(copy.from.buffer, resolve(copy.from.offsets), piece, copy.from.terms, loc);
  store.to.array = store.map->tensor;
  store.to.offset = ir::constant(DType::i64, 0);
  store.to.indices = store.coordinates;
  store.adds = copy.adds;
  when(is_started, loc, [&] { emit({std::move(store), loc}); });
  emit({Commit{Work::stores, copy.token}, loc});
}

}  // namespace tessera::codegen
