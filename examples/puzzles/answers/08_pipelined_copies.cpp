// An answer to ../08_pipelined_copies.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

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
  k.pipelined(0, depth / 32, 3, [&](auto step) {
    k.copy(x.tile({at.x * 8, step * 32}), tile);
    k.parallel({8, 32}, [&](auto r, auto c) { sum(r, c) += tile(r, c); });
  });
  k.copy(sum, y.tile({at.x * 8, 0}));
  return k.finish();
}
