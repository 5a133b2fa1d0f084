// 04_row_sum: the sum of each row.
//
// A reduction folds one axis of a fragment into another fragment. The compiler decides which threads hold
// which elements and how they exchange them.
//
// Words: k.reduce_sum(from, to, Axis(1)).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::row_sum() {
  Builder k("row_sum");
  auto rows = k.dim("rows");
  auto x = k.input("x", ts::DType::f32, {rows, 256});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({ceil_div(rows, 8)}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {8, 256}, "tile");
  k.copy(x.tile({at.x * 8, 0}), tile);
  hole(
      "make a fragment of 8 sums, reduce the tile along axis 1 into it, copy it to "
      "y.tile({at.x * 8}, {8})");
  return k.finish();
}
