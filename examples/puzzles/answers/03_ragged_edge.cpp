// An answer to ../03_ragged_edge.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::largest() {
  constexpr float kLeast = -3.402823466e38f;  // no f32 is less
  Builder k("largest");
  auto rows = k.dim("rows"), cols = k.dim("cols");  // at most 128 columns
  auto x = k.input("x", ts::DType::f32, {rows, cols});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {4, 128}, "tile");  // wider than x
  auto most = k.fragment(ts::DType::f32, {4}, "most");
  k.copy(x.tile({at.x * 4, 0}), tile, {.outside = kLeast});
  k.reduce_max(tile, most, Axis(1));
  k.copy(most, y.tile({at.x * 4}));
  return k.finish();
}
