// 02_add: add two matrices.
//
// k.parallel runs its body for every element of a tile, spread over the threads of the block. Inside,
// a(r, c) is one element; it can be read and assigned.
//
// Words: k.parallel({rows, columns}, [&](auto r, auto c) { ... }).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

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
  hole("add each element of b_tile to that of a_tile, in k.parallel({4, 64}, ...)");
  k.copy(a_tile, y.tile({at.x * 4, 0}));
  return k.finish();
}
