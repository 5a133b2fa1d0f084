#pragma once
// The tensor and the tile of a copy between global memory and a tile.

#include <cstdint>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

struct Sides {
  const ir::Region &tensor, &tile;
  bool stores = false;  // from the tile to the tensor
};
inline Sides sides_of(const ir::Copy& copy) {
  const bool stores = copy.to.buffer->space == ir::Space::global;
  return stores ? Sides{copy.to, copy.from, true} : Sides{copy.from, copy.to, false};
}

/// Extents of the part of the tensor, 1 where one value indexes it.
inline std::vector<int64_t> box_of(const Sides& sides) {
  std::vector<int64_t> box;
  for (const ir::Expr& extent : sides.tensor.extents) box.push_back(extent ? extent->integer : 1);
  return box;
}

}  // namespace tessera::codegen
