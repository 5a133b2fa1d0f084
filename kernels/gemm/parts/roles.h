#pragma once
// The roles of a matrix product: one loads tiles into a ring, one multiplies them by wgmma.

#include <functional>

#include "dsl/builder.h"
#include "kernels/gemm/parts/tile.h"

namespace tessera::kernels::gemm {

/// Groups of four warps that multiply, one for each 64 rows of a tile.
inline int multipliers(const Tile& t) {
  return t.rows / 64;
}

/// Threads of the block: the groups that multiply, and one group of four warps for the role that loads.
inline int threads_of_roles(const Tile& t) {
  return (multipliers(t) + 1) * 128;
}

/// Blocks that compute down x across tiles: whole clusters, as many as run at once.
inline dsl::Value blocks_of_roles(dsl::Builder& k, const Tile& t, const dsl::Value& down,
                                  const dsl::Value& across) {
  auto clusters = ceil_div(down, t.cluster) * across;
  return min(clusters, k.device_blocks() / t.cluster) * t.cluster;
}

/// Registers of a thread of each role.
struct RoleRegisters {
  int load = 40, multiply = 232;
};

/// One warp issues tensor copies fast enough. Copies of single elements, such as scales, need all four.
inline dsl::Role role_that_loads(const std::function<void()>& body, int warps = 1,
                                 const RoleRegisters& registers = {}) {
  return {.name = "load", .warps = warps, .registers = registers.load, .body = body};
}

inline dsl::Role role_that_multiplies(const Tile& t, const std::function<void()>& body,
                                      const RoleRegisters& registers = {}) {
  return {.name = "multiply",
          .warpgroups = multipliers(t),
          .registers = registers.multiply,
          .body = body};
}

}  // namespace tessera::kernels::gemm
