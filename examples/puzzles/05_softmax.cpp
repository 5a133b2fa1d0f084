// 05_softmax: exp(x - max) / sum over each row.
//
// Two reductions and two loops over the elements. Subtracting the largest element keeps exp from
// overflowing.
//
// Words: k.reduce_max, k.reduce_sum, k.parallel, exp(value).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::softmax() {
  Builder k("softmax");
  auto rows = k.dim("rows");
  auto x = k.input("x", ts::DType::f32, {rows, 512});
  auto y = k.output("y", ts::DType::f32, {rows, 512});
  auto at = k.launch({rows}, {.threads = 128});  // a row per block

  auto row = k.fragment(ts::DType::f32, {1, 512}, "row");
  auto most = k.fragment(ts::DType::f32, {1}, "most");
  auto sum = k.fragment(ts::DType::f32, {1}, "sum");
  k.copy(x.tile({at.x, 0}), row);
  hole(
      "reduce the row to its maximum, replace each element by exp(row(r, c) - most(r)), "
      "reduce to the sum, divide");
  k.copy(row, y.tile({at.x, 0}));
  return k.finish();
}
