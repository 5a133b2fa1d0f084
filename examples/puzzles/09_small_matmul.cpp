// 09_small_matmul: c = a * b in bf16 on the tensor cores.
//
// k.gemm multiplies two shared tiles and adds the product to a fragment of f32. The fragment starts at 0:
// the executor traps on a sum that nobody filled.
//
// Words: k.gemm(a_tile, b_tile, sum).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

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
  hole(
      "fill sum with 0; loop over ceil_div(depth, 16) steps: copy both tiles, then "
      "k.gemm(a_tile, b_tile, sum)");
  k.copy(sum, c.tile({row, column}));
  return k.finish();
}
