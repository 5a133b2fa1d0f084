// 10_cluster: four blocks add up one row together.
//
// Blocks of a cluster run at the same time and reach each other's shared memory (DSMEM, from sm_90 on).
// Each block sums its quarter of the row. Then every block reads all four parts, and block 0 writes.
//
// Words: k.of_block(buffer, rank), k.sync_cluster().
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

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
  hole(
      "k.sync_cluster(); then add k.of_block(mine, rank)(0) of the ranks 0 .. 3 to sum, in "
      "k.unrolled(4, ...)");
  k.if_(k.cluster_rank() == 0 && k.thread() == 0, [&] { y(at.y) = sum; });
  return k.finish();
}
