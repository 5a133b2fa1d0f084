// 03_ragged_edge: the largest element of each row, where rows are shorter than the tile.
//
// A tile may reach beyond the end of its tensor. There a copy reads 0 and writes nothing, so most kernels
// need no `if`. A maximum of negative numbers does: a 0 from outside would win.
//
// Words: k.copy(from, to, {.outside = value}).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::largest() {
  [[maybe_unused]] constexpr float kLeast = -3.402823466e38f;  // no f32 is less
  Builder k("largest");
  auto rows = k.dim("rows"), cols = k.dim("cols");  // at most 128 columns
  auto x = k.input("x", ts::DType::f32, {rows, cols});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {4, 128}, "tile");  // wider than x
  auto most = k.fragment(ts::DType::f32, {4}, "most");
  hole("copy the tile {4, 128} of x at row 4 * at.x, with kLeast for what is outside");
  k.reduce_max(tile, most, Axis(1));
  k.copy(most, y.tile({at.x * 4}));
  return k.finish();
}
