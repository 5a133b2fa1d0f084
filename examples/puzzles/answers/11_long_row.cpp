// An answer to ../11_long_row.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::long_row_sum() {
  Builder k("long_row_sum");
  auto rows = k.dim("rows"), cols = k.dim("cols");
  auto x = k.input("x", ts::DType::f32, {rows, cols});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({rows}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {1, 512}, "tile");
  auto total = k.reducer(ReduceOp::sum, ts::DType::f32);
  total.init();
  k.serial(0, ceil_div(cols, 512), [&](auto step) {
    k.copy(x.tile({at.x, step * 512}), tile);
    k.parallel({1, 512}, [&](auto r, auto c) { total.update(tile(r, c)); });
  });
  auto sum = total.finalize();
  k.if_(k.thread() == 0, [&] { y(at.x) = sum; });
  return k.finish();
}
