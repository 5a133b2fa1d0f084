// An answer to ../04_row_sum.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::row_sum() {
  Builder k("row_sum");
  auto rows = k.dim("rows");
  auto x = k.input("x", ts::DType::f32, {rows, 256});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({ceil_div(rows, 8)}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {8, 256}, "tile");
  k.copy(x.tile({at.x * 8, 0}), tile);
  auto sums = k.fragment(ts::DType::f32, {8}, "sums");
  k.reduce_sum(tile, sums, Axis(1));
  k.copy(sums, y.tile({at.x * 8}));
  return k.finish();
}
