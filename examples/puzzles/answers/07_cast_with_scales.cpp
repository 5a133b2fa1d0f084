// An answer to ../07_cast_with_scales.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::cast_with_scales() {
  constexpr float kMost = 448.0f, kFloor = 1e-4f;
  Builder k("cast_with_scales");
  auto rows = k.dim("rows");
  auto x = k.input("x", ts::DType::f32, {rows, 256});
  auto codes = k.output("codes", ts::DType::e4m3, {rows, 256});
  auto scales = k.output("scales", ts::DType::f32, {rows, 2});
  auto at = k.launch({rows}, {.threads = 64});

  auto row = k.fragment(ts::DType::f32, {1, 256}, "row");
  auto amax = k.fragment(ts::DType::f32, {1, 2}, "amax");
  auto cast_row = k.fragment(ts::DType::e4m3, {1, 256}, "cast_row");
  k.copy(x.tile({at.x, 0}), row);
  k.reduce_absmax(row.reshape({1, 2, 128}), amax, Axis(2));
  k.parallel({1, 2}, [&](auto r, auto g) {
    amax(r, g) = max(amax(r, g), kFloor);
    scales(at.x, g) = amax(r, g) / kMost;
  });
  k.parallel({1, 256}, [&](auto r, auto c) {
    cast_row(r, c) = cast(ts::DType::e4m3, row(r, c) * (kMost / amax(r, c / 128)));
  });
  k.copy(cast_row, codes.tile({at.x, 0}));
  return k.finish();
}
