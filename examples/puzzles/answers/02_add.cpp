// An answer to ../02_add.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::add() {
  Builder k("add");
  auto rows = k.dim("rows");
  auto a = k.input("a", ts::DType::f32, {rows, 64});
  auto b = k.input("b", ts::DType::f32, {rows, 64});
  auto y = k.output("y", ts::DType::f32, {rows, 64});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 128});

  auto a_tile = k.fragment(ts::DType::f32, {4, 64}, "a_tile");
  auto b_tile = k.fragment(ts::DType::f32, {4, 64}, "b_tile");
  k.copy(a.tile({at.x * 4, 0}), a_tile);
  k.copy(b.tile({at.x * 4, 0}), b_tile);
  k.parallel({4, 64}, [&](auto r, auto c) { a_tile(r, c) += b_tile(r, c); });
  k.copy(a_tile, y.tile({at.x * 4, 0}));
  return k.finish();
}
