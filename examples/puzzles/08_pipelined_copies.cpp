// 08_pipelined_copies: sums of rows that come tile by tile, while the next tiles are on their way.
//
// k.pipelined is k.serial whose copies from global to shared memory are issued stages - 1 steps ahead. You write
// the loop as if each copy were done at once; the compiler places waits and barriers.
//
// Words: k.pipelined(begin, end, stages, [&](auto step) { ... }).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::pipelined_sum() {
  Builder k("pipelined_sum");
  auto rows = k.dim("rows");
  auto depth = k.dim("depth", {.multiple_of = 32});
  auto x = k.input("x", ts::DType::f32, {rows, depth});
  auto y = k.output("y", ts::DType::f32, {rows, 32});
  auto at = k.launch({ceil_div(rows, 8)}, {.threads = 64});

  auto tile = k.shared(ts::DType::f32, {8, 32}, "tile");
  auto sum = k.fragment(ts::DType::f32, {8, 32}, "sum");  // of columns 0, 32, 64, ..; 1, 33, ..
  k.fill(sum, 0.0f);
  hole(
      "k.pipelined over depth / 32 steps with 3 stages: copy x.tile({at.x * 8, step * 32}, "
      "{8, 32}) into the tile, then add the tile to sum");
  k.copy(sum, y.tile({at.x * 8, 0}));
  return k.finish();
}
