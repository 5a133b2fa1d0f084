#pragma once
// The roles of a matrix product: one loads tiles into a ring, one multiplies them by wgmma.

#include <functional>

#include "dsl/builder.h"
#include "kernels/gemm/tile.h"

namespace tessera::kernels::gemm {

/// Groups of four warps that multiply, one for each 64 rows of a tile.
inline int multipliers(const Tile& t) {
  return t.rows / 64;
}

/// Threads of the block: the groups that multiply, and one group of four warps for the role that loads.
inline int threads_of_roles(const Tile& t) {
  return (multipliers(t) + 1) * 128;
}

/// Blocks that compute down x across tiles: whole clusters.
inline dsl::Value blocks_of_roles(const Tile& t, const dsl::Value& down, const dsl::Value& across) {
  return min(ceil_div(down, t.cluster) * across, t.blocks / t.cluster) * t.cluster;
}

/// One warp issues tensor copies fast enough. Copies of single elements, such as scales, need all four.
inline dsl::Role role_that_loads(const std::function<void()>& body, int warps = 1) {
  return {.name = "load", .warps = warps, .registers = 40, .body = body};
}

inline dsl::Role role_that_multiplies(const Tile& t, const std::function<void()>& body) {
  return {.name = "multiply", .warpgroups = multipliers(t), .registers = 232, .body = body};
}

}  // namespace tessera::kernels::gemm
