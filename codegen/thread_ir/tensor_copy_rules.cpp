#include "codegen/thread_ir/tensor_copy_rules.h"

#include <algorithm>

namespace tessera::codegen {
namespace {

constexpr size_t kMostDimensions = 5;
constexpr int64_t kMostExtent = 256;   // of a box
constexpr int64_t kPieceBytes = 16;    // that rows of a box are multiples of
constexpr int64_t kTargetBytes = 128;  // that a target without a swizzle is aligned to

}  // namespace

std::string_view broken_rule(const TensorCopy& copy, const Program& program, bool is_placed) {
  const TensorMap& map = *copy.map;
  const Array &tensor = *map.tensor, &tile = *copy.to.array;
  const size_t rank = map.box.size();
  if (std::find(program.maps.begin(), program.maps.end(), copy.map) == program.maps.end()) {
    return "a tensor copy has a map of the program";
  }
  if (copy.multicast && program.cluster == 1) return "a multicast is in a program with clusters";
  if (!tensor.is_constant()) return "a tensor map is of a tensor that the kernel does not write";
  if (rank < 1 || rank > kMostDimensions || copy.coordinates.size() != rank ||
      map.strides.size() != rank || tensor.shape.size() != rank) {
    return "a tensor copy has 1 to 5 coordinates, one per dimension";
  }
  const auto fits = [](int64_t extent) { return extent >= 1 && extent <= kMostExtent; };
  if (!std::all_of(map.box.begin(), map.box.end(), fits)) return "a box has extents of 1 to 256";
  const int64_t row = map.box.back() * bits(tensor.dtype) / 8;
  if (row % kPieceBytes != 0 || (map.swizzle > 0 && row > map.swizzle)) {
    return "rows of a box are multiples of 16 bytes, no wider than the swizzle";
  }
  const auto is_i32 = [](const Expr& coordinate) { return coordinate->type == DType::i32; };
  if (!std::all_of(copy.coordinates.begin(), copy.coordinates.end(), is_i32)) {
    return "coordinates are i32";
  }
  if (tile.dtype != tensor.dtype || copy.to.guard) {
    return "a copy in flight neither converts nor skips";
  }
  const int64_t align = map.swizzle > 0 ? 8 * map.swizzle : kTargetBytes;
  if (is_placed && tile.shared_offset % align != 0) {
    return "the target of a tensor copy begins where its pattern does";
  }
  return {};
}

}  // namespace tessera::codegen
