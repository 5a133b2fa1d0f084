// TileLowering: copies of boxes of a tensor to shared tiles.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "codegen/lowering/tile_lowering.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

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
    const Access at = write.to;
    emit({std::move(write), loc});
    emit({AcquireMap{at}, loc});
  });
}

void TileLowering::lower_tensor_copy(const ir::Loop& loop, SourceLoc loc) {
  const auto& load = load_of(loop);
  const auto& store = store_of(loop);
  const ir::Buffer& tensor = *load.buffer;
  // `e` in the first iteration, or in the second one along an axis.
  const auto at = [&](const Expr& e, std::optional<size_t> axis = std::nullopt) {
    std::map<const ir::Var*, Expr> values;
    for (size_t i = 0; i < loop.vars.size(); ++i) {
      values[loop.vars[i].get()] = ir::index(i == axis ? 1 : 0);
    }
    return resolve(ir::substitute(e, [&](const VarRef& var) {
      const auto found = values.find(var.get());
      return found == values.end() ? Expr() : found->second;
    }));
  };
  std::vector<int64_t> box;
  TensorCopy copy;
  for (size_t d = 0; d < load.indices.size(); ++d) {
    const Expr first = math_.simplify(at(load.indices[d]));
    int64_t extent = 1;
    for (size_t i = 0; i < loop.vars.size(); ++i) {
      const Expr step = math_.simplify(at(load.indices[d], i) - first);
      if (ir::is_constant(step, 0)) continue;
      TESSERA_CHECK(ir::is_constant(step, 1) && extent == 1, "a tensor copy that is no box");
      extent = loop.extents[i]->integer;
    }
    box.push_back(extent);
    copy.coordinates.push_back(coordinate_of(first, tensor.shape[d]));
  }
  copy.map = map_of_tile(load.buffer, std::move(box));
  if (tensor.map) copy.map_at = place_of_map(tensor, loc);
  check_indices(
      load, [&](const Expr& e) { return at(e); }, loc);
  check_indices(
      store, [&](const Expr& e) { return at(e); }, loc);
  std::vector<Expr> to = store.indices;
  for (Expr& index : to) index = at(index);
  const int piece = 128 / bits(tensor.dtype);
  copy.to = access(store.buffer, to, piece, store.terms, loc);
  if (const int ring = copy.to.array->ring; ring >= 0) {
    copy.mbarrier = rings_[static_cast<size_t>(ring)].filled;
    copy.expects = true;
  }
  const Expr is_first_warp = thread() < ir::index(kThreadsPerWarp);
  copy.multicast = loop.plan->multicast == ir::Multicast::required;
  when(group_.count > kThreadsPerWarp ? is_first_warp : Expr(), loc, [&] {
    emit({std::move(copy), loc});
  });
}

}  // namespace tessera::codegen
