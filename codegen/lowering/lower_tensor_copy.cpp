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
  auto map = std::make_shared<TensorMap>();
  map->tensor = array_of(load.buffer);
  map->strides = tensor.strides;
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
    map->box.push_back(extent);
    // The map of an empty tensor has the extent 1.
    const Expr& size = tensor.shape[d];
    const bool is_present =
        math_.less(ir::index(0), size) || (math_.non_negative(first) && math_.less(first, size));
    copy.coordinates.push_back(
        is_present ? first
                   : ir::select(ir::binary(ir::Op::lt, ir::constant(size->type, 0), size), first,
                                ir::index(kFarOutside)));
  }
  std::vector<TensorMapRef>& maps = result_.program.maps;
  map->name = fmt::format("{}_tile_{}", tensor.name, maps.size() + 1);
  maps.push_back(map);
  copy.map = map;
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
  copy.multicast = load.terms.multicast;
  when(group_.count > kThreadsPerWarp ? is_first_warp : Expr(), loc, [&] {
    emit({std::move(copy), loc});
  });
}

}  // namespace tessera::codegen
