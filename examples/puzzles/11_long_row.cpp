// 11_long_row: the sum of a row that fits into no fragment, in an order that never changes.
//
// Floats add up differently in another order. A reducer keeps parts in the threads and folds them at the
// end, in an order that follows from shapes and block size alone: a row has the same bits whatever the
// other rows are.
//
// Words: k.reducer(ReduceOp::sum, dtype), total.init(), total.update(value), total.finalize().
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::long_row_sum() {
  Builder k("long_row_sum");
  auto rows = k.dim("rows"), cols = k.dim("cols");
  auto x = k.input("x", ts::DType::f32, {rows, cols});
  auto y = k.output("y", ts::DType::f32, {rows});
  auto at = k.launch({rows}, {.threads = 128});

  auto tile = k.fragment(ts::DType::f32, {1, 512}, "tile");
  auto total = k.reducer(ReduceOp::sum, ts::DType::f32);
  hole(
      "total.init(); k.serial over ceil_div(cols, 512) steps: copy the next tile, "
      "k.parallel({1, 512}, ...) with total.update(tile(r, c)); then write total.finalize() "
      "to y(at.x) in k.if_(k.thread() == 0, ...)");
  return k.finish();
}
