// 01_copy: copy a matrix.
//
// A kernel declares its tensors, launches blocks of threads, and writes statements. Here each block takes
// four rows: it copies their tile of x into a fragment (registers, spread over the threads), and the
// fragment into the same tile of y.
//
// Words: k.copy(from, to), x.tile({first row, first column}, {rows, columns}).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::copy_rows() {
  Builder k("copy_rows");
  auto rows = k.dim("rows");  // any number of rows, one kernel
  auto x = k.input("x", ts::DType::f32, {rows, 64});
  auto y = k.output("y", ts::DType::f32, {rows, 64});
  auto at =
      k.launch({ceil_div(rows, 4)}, {.threads = 128});  // block at.x has rows 4 * at.x + 0 .. 3

  auto tile = k.fragment(ts::DType::f32, {4, 64}, "tile");
  hole(
      "copy rows 4 * at.x .. 4 * at.x + 3 of x into the tile, then the tile into the same "
      "rows of y");
  return k.finish();
}
