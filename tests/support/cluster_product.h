#pragma once
// A product by roles in a launch with clusters, whose blocks share copies of an operand: for tests of multicast.

#include <string>

#include "dsl/builder.h"

namespace tessera::test {

/// c [m, n] f32 = a [m, depth] * b [n, depth] transposed, bf16, by a persistent loop over any m and n.
struct ClusterProduct {
  int64_t m = 192, n = 320, depth = 128;  // of the call; depth is a multiple of step
  int64_t tile_rows = 64, tile_columns = 64, step = 32;
  int stages = 2;
  int threads = 128;  // that multiply
  int cluster = 2;    // blocks
  int blocks = 4;     // of the grid: a multiple
  int share = 0;      // the axis of PersistentOptions: 0 shares tiles of b, 1 those of a
  int64_t group = 1;
  ir::Multicast multicast = ir::Multicast::automatic;
  bool names_rank = false;  // a wrong program: what should be the same tile depends on the block

  std::string text() const;
};
ir::Kernel cluster_product(const ClusterProduct& product);

}  // namespace tessera::test
