// An answer to ../01_copy.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::copy_rows() {
  Builder k("copy_rows");
  auto rows = k.dim("rows");  // any number of rows, one kernel
  auto x = k.input("x", ts::DType::f32, {rows, 64});
  auto y = k.output("y", ts::DType::f32, {rows, 64});
  auto at =
      k.launch({ceil_div(rows, 4)}, {.threads = 128});  // block at.x has rows 4 * at.x + 0 .. 3

  auto tile = k.fragment(ts::DType::f32, {4, 64}, "tile");
  k.copy(x.tile({at.x * 4, 0}), tile);
  k.copy(tile, y.tile({at.x * 4, 0}));
  return k.finish();
}
