// An answer to ../10_cluster.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::cluster_sum() {
  Builder k("cluster_sum");
  auto rows = k.dim("rows");
  auto x = k.input("x", ts::DType::f32, {rows, 1024});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({4, rows}, {.threads = 64, .cluster = 4});  // block (quarter, row)

  auto quarter = k.fragment(ts::DType::f32, {1, 256}, "quarter");
  auto part = k.fragment(ts::DType::f32, {1}, "part");
  auto mine = k.shared(ts::DType::f32, {1}, "mine");
  k.copy(x.tile({at.y, at.x * 256}), quarter);
  k.reduce_sum(quarter, part, Axis(1));
  k.copy(part, mine);
  auto sum = k.var(ts::DType::f32, 0.0f, "sum");
  k.sync_cluster();
  k.unrolled(4, [&](auto rank) { sum += k.of_block(mine, rank)(0); });
  k.if_(k.cluster_rank() == 0 && k.thread() == 0, [&] { y(at.y) = sum; });
  return k.finish();
}
