// An answer to ../06_transpose.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::layout::Layout puzzles::transpose_layout() {
  // axis, div, extent, thread, slot
  return ts::layout::Layout({8, 8}, {{0, 1, 8, 1, 0}, {1, 1, 2, 0, 1}, {1, 2, 4, 8, 0}});
}

ts::ir::Kernel puzzles::transpose() {
  Builder k("transpose");
  auto rows = k.dim("rows"), cols = k.dim("cols");
  auto x = k.input("x", ts::DType::f32, {rows, cols});
  auto y = k.output("y", ts::DType::f32, {cols, rows});
  auto at = k.launch({ceil_div(cols, 8), ceil_div(rows, 8)}, {.threads = 32});

  auto tile = k.fragment(ts::DType::f32, transpose_layout(), "tile");
  k.copy(x.tile({at.y * 8, at.x * 8}), tile);
  k.copy(tile.transposed(), y.tile({at.x * 8, at.y * 8}, {8, 8}));
  return k.finish();
}
