// 06_transpose: a transpose whose fragment has a layout of yours.
//
// The compiler chooses layouts; you may choose one. A layout says for each element (i, j) of a tile which
// thread holds it, and in which register slot. It is made of digits: Digit{axis, div, extent, thread, slot}
// takes (index of the axis / div) % extent and adds it, times `thread`, to the thread number, or, times
// `slot`, to the slot.
//
// Draw this one: 8 x 8 elements over 32 threads. Two neighbours of a row share a thread.
//
//     0  0  8  8 16 16 24 24
//     1  1  9  9 17 17 25 25
//     2  2 10 10 18 18 26 26
//     3  3 11 11 19 19 27 27
//     4  4 12 12 20 20 28 28
//     5  5 13 13 21 21 29 29
//     6  6 14 14 22 22 30 30
//     7  7 15 15 23 23 31 31
//
// Words: ts::layout::Layout({8, 8}, {digits}); see dsl/layout/layout.h.
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::layout::Layout puzzles::transpose_layout() {
  hole("three digits: i counts threads by 1; j % 2 counts slots; j / 2 counts threads by 8");
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
