// An answer to ../05_softmax.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

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
  k.reduce_max(row, most, Axis(1));
  k.parallel({1, 512}, [&](auto r, auto c) { row(r, c) = exp(row(r, c) - most(r)); });
  k.reduce_sum(row, sum, Axis(1));
  k.parallel({1, 512}, [&](auto r, auto c) { row(r, c) = row(r, c) / sum(r); });
  k.copy(row, y.tile({at.x, 0}));
  return k.finish();
}
