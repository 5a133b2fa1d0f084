// TileLowering: copies of boxes of a tensor to shared tiles.

#include <fmt/format.h>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kFarOutside = int64_t{1}
                                << 30;  // beyond the extent 1 of a map of an empty tensor

}  // namespace

Expr TileLowering::coordinate_of(const Expr& first, const Expr& extent) const {
  // The map of an empty tensor has the extent 1.
  const bool is_present =
      math_.less(ir::index(0), extent) || (math_.non_negative(first) && math_.less(first, extent));
  if (is_present) return first;
  const Expr exists = ir::binary(ir::Op::lt, ir::constant(extent->type, 0), extent);
  return ir::select(exists, first, ir::index(kFarOutside));
}

TensorMapRef TileLowering::map_of_tile(const ir::BufferRef& tensor, std::vector<int64_t> box) {
  std::vector<TensorMapRef>& maps = result_.program.maps;
  auto map = std::make_shared<TensorMap>();
  map->name = fmt::format("{}_tile_{}", tensor->name, maps.size() + 1);
  map->tensor = array_of(tensor);
  map->strides = tensor->strides;
  map->box = std::move(box);
  maps.push_back(map);
  return map;
}

Access TileLowering::place_of_map(const ir::Buffer& tensor, SourceLoc loc) {
  const int words = static_cast<int>(tensor.map->shape[1]->integer);
  ir::AccessTerms terms;
  terms.unchecked = true;
  return access(tensor.map, {resolve(tensor.map_row), ir::index(0)}, words, terms, loc);
}

/// The first warp writes the map of a tensor that begins here.
void TileLowering::write_map(const ir::BufferRef& tensor, SourceLoc loc) {
  WriteMap write;
  write.tensor = array_of(tensor);
  for (const Expr& extent : tensor->shape) {
    const Expr wide = ir::cast(DType::i64, resolve(extent));
    write.extents.push_back(math_.less(ir::index(0), extent)
                                ? wide
                                : ir::binary(ir::Op::max, wide, ir::constant(DType::i64, 1)));
  }
  for (const Expr& stride : tensor->strides) {
    write.strides.push_back(ir::cast(DType::i64, resolve(stride)));
  }
  write.to = place_of_map(*tensor, loc);
  const Expr is_first_warp = thread() < ir::index(kThreadsPerWarp);
  when(group_.count > kThreadsPerWarp ? is_first_warp : Expr(), loc, [&] {
    emit({std::move(write), loc});
  });
}

void TileLowering::lower_tensor_copy(const ir::Copy& copy, SourceLoc loc) {
  const ir::Buffer& tensor = *copy.from.buffer;
  std::vector<int64_t> box;
  TensorCopy node;
  for (size_t d = 0; d < copy.from.offsets.size(); ++d) {
    const Expr& extent = copy.from.extents[d];
    box.push_back(extent ? extent->integer : 1);
    const Expr first = math_.simplify(resolve(copy.from.offsets[d]));
    node.coordinates.push_back(coordinate_of(first, tensor.shape[d]));
  }
  node.map = map_of_tile(copy.from.buffer, std::move(box));
  if (tensor.map) node.map_at = place_of_map(tensor, loc);
  for (const ir::Region* side : {&copy.from, &copy.to}) {
    check_indices(
        side->buffer, side->offsets, side->terms.tile_indices,
        [&](const Expr& e) { return resolve(e); }, loc);
  }
  const int piece = 128 / bits(tensor.dtype);
  node.to = access(copy.to.buffer, resolve(copy.to.offsets), piece, copy.to.terms, loc);
  if (const int ring = node.to.array->ring; ring >= 0) {
    node.mbarrier = rings_[static_cast<size_t>(ring)].filled;
    node.expects = true;
  }
  const Expr is_first_warp = thread() < ir::index(kThreadsPerWarp);
  node.multicast = copy.plan.multicast == ir::Multicast::required;
  when(group_.count > kThreadsPerWarp ? is_first_warp : Expr(), loc, [&] {
    emit({std::move(node), loc});
  });
}

}  // namespace tessera::codegen
