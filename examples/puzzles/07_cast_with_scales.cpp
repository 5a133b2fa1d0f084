// 07_cast_with_scales: f32 to 8-bit floats with one scale per 128 columns.
//
// e4m3 reaches 448. Each group of 128 columns is divided by its largest magnitude over 448, which is kept
// as the scale of the group. The result must have the bits of the shipped op per_token_cast:
//
//   amax  = max(largest magnitude, 1e-4)
//   scale = amax / 448
//   code  = cast to e4m3 of x * (448 / amax)
//
// Words: cast(ts::DType::e4m3, value), max(a, b), fragment.reshape({...}).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::cast_with_scales() {
  [[maybe_unused]] constexpr float kMost = 448.0f, kFloor = 1e-4f;
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
  hole(
      "k.parallel({1, 2}, ...): clamp amax(r, g) and write amax / kMost to scales(at.x, g); "
      "k.parallel({1, 256}, ...): cast_row(r, c) = cast(e4m3, row * (kMost / amax(r, c / "
      "128)))");
  k.copy(cast_row, codes.tile({at.x, 0}));
  return k.finish();
}
