#include "codegen/thread_ir/tensor_copy_rules.h"

#include <algorithm>

namespace tessera::codegen {
namespace {

using namespace tensor_copy;

/// Rules of the box, and of its place in shared memory.
template <class Move>
std::string_view broken_rule(const Move& move, const Access& shared, const Program& program,
                             bool is_placed) {
  const TensorMap& map = *move.map;
  const Array &tensor = *map.tensor, &tile = *shared.array;
  const size_t rank = map.box.size();
  if (std::find(program.maps.begin(), program.maps.end(), move.map) == program.maps.end()) {
    return "a tensor copy has a map of the program";
  }
  if (rank < 1 || rank > kMaxDimensions || move.coordinates.size() != rank ||
      map.strides.size() != rank || tensor.shape.size() != rank) {
    return "a tensor copy has 1 to 5 coordinates, one per dimension";
  }
  const auto fits = [](int64_t extent) { return extent >= 1 && extent <= kMaxExtent; };
  // lower_bulk_copies divides the box of a whole tile into panels.
  const bool has_panels =
      map.swizzle == 0 && (!tile.swizzle || tile.swizzle->panel < tile.swizzle->columns);
  if (!std::all_of(map.box.begin(), map.box.end() - (has_panels ? 1 : 0), fits)) {
    return "a box has extents of 1 to 256";
  }
  const int64_t row = map.box.back() * bits(tensor.dtype) / 8;
  if (row % kPieceBytes != 0 || (map.swizzle > 0 && row > map.swizzle)) {
    return "rows of a box are multiples of 16 bytes, no wider than the swizzle";
  }
  const auto is_i32 = [](const Expr& coordinate) { return coordinate->type == DType::i32; };
  if (!std::all_of(move.coordinates.begin(), move.coordinates.end(), is_i32)) {
    return "coordinates are i32";
  }
  if (tile.dtype != tensor.dtype || shared.guard) {
    return "a copy in flight neither converts nor skips";
  }
  const int64_t align = map.swizzle > 0 ? 8 * map.swizzle : kTargetBytes;
  if (is_placed && tile.shared_offset % align != 0) {
    return "the tile of a tensor copy begins where its pattern does";
  }
  return {};
}

/// That the engine adds.
bool is_added(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
         dtype == DType::i32 || dtype == DType::u32 || dtype == DType::u64;
}

}  // namespace

std::string_view broken_rule(const Stmt& stmt, const Program& program, bool is_placed) {
  if (const auto* copy = std::get_if<TensorCopy>(&stmt.node)) {
    if (!copy->map->tensor->is_constant()) {
      return "a tensor copy is of a tensor that the kernel does not write";
    }
    if ((copy->map_at.array != nullptr) != static_cast<bool>(copy->map->tensor->address)) {
      return "a tensor copy has a map in memory if its tensor is at an address";
    }
    if (copy->multicast && program.cluster == 1) {
      return "a multicast is in a program with clusters";
    }
    return broken_rule(*copy, copy->to, program, is_placed);
  }
  const auto* store = std::get_if<TensorStore>(&stmt.node);
  if (store == nullptr) return {};
  if (store->to.array != store->map->tensor || store->to.array->may_alias) {
    return "a tensor store is to the tensor of its map, which shares its memory with no other";
  }
  if (store->adds && !is_added(store->to.array->dtype)) return "the engine adds this dtype";
  return broken_rule(*store, store->from, program, is_placed);
}

}  // namespace tessera::codegen
