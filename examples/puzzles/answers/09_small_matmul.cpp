// An answer to ../09_small_matmul.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::matmul() {
  Builder k("matmul");
  auto m = k.dim("m"), n = k.dim("n"), depth = k.dim("depth");
  auto a = k.input("a", ts::DType::bf16, {m, depth});
  auto b = k.input("b", ts::DType::bf16, {depth, n});
  auto c = k.output("c", ts::DType::f32, {m, n});
  auto at = k.launch({ceil_div(n, 32), ceil_div(m, 32)}, {.threads = 128});
  auto row = at.y * 32, column = at.x * 32;

  auto a_tile = k.shared(ts::DType::bf16, {32, 16}, "a_tile");
  auto b_tile = k.shared(ts::DType::bf16, {16, 32}, "b_tile");
  auto sum = k.fragment(ts::DType::f32, {32, 32}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, ceil_div(depth, 16), 3, [&](auto step) {
    k.copy(a.tile({row, step * 16}), a_tile);
    k.copy(b.tile({step * 16, column}), b_tile);
    k.gemm(a_tile, b_tile, sum);
  });
  k.copy(sum, c.tile({row, column}));
  return k.finish();
}
