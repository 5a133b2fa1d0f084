// The text of thread IR, as `tessera show --stage thread` prints it.

#include "codegen/thread_ir.h"

#include "tests/support/catch.h"
#include "tests/support/program_builder.h"

namespace tessera {
namespace {

using test::f32;
using test::number;
using test::ProgramBuilder;
using test::wide;

TEST_CASE("a program prints its parameters, memory and statements", "[codegen]") {
  ProgramBuilder k("sample", 64);
  const ir::Expr rows = k.dim("rows");
  const test::ArrayRef x = k.input("x", DType::bf16, {rows, number(8)});
  const test::ArrayRef y = k.output("y", DType::f32, {rows, number(8)});
  const test::ArrayRef tile = k.shared("tile", DType::f32, {number(64)});
  k.grid({(rows + number(63)) / number(64)});
  k.min_blocks(2);
  const ir::Expr block = k.block("block_row", 0);
  const ir::Expr row = k.let("row", block * number(64) + k.thread());
  k.comment("copy x to x_frag", 7);
  const test::ArrayRef x_frag = k.registers("x_frag", DType::bf16, 8);
  const test::ArrayRef wide_frag = k.registers("wide_frag", DType::f32, 8, true);
  k.load({x_frag, number(0)}, x, wide(row) * number(8), 8, row < rows);
  k.convert({wide_frag, number(0)}, {x_frag, number(0)}, 8);
  k.unrolled("i", 8, [&](const ir::Expr& i) {
    const ir::Expr element = k.load("element", wide_frag, i);
    const ir::Expr other =
        k.collective("other", ir::CollectiveKind::shuffle_xor, {element, number(4)}, 8);
    k.store(tile, k.thread(), other);
    k.barrier();
  });
  k.branch(
      row < rows,
      [&] {
        k.store(y, wide(row) * number(8), {wide_frag, number(0)}, 4);
      },
      [&] { k.warp_barrier(); });
  CHECK(to_string(k.finish()) ==
        "program sample: grid [(rows + 63) / 64], 64 threads, at least 2 blocks per SM\n"
        "  dim rows: i32\n"
        "  param x: bf16[rows, 8], read only\n"
        "  param y: f32[rows, 8]\n"
        "  block_row: block index x\n"
        "  thread: thread index\n"
        "  shared memory: 256 bytes\n"
        "  shared tile: f32[64] at byte 0\n"
        "  row = block_row * 64 + thread\n"
        "  # copy x to x_frag  (sample.cpp:7)\n"
        "  registers x_frag: bf16[8]\n"
        "  registers wide_frag: f32[8] = 0\n"
        "  x_frag[0 .. +8] = load x[cast<i64>(row) * 8 .. +8], guarded, if row < rows\n"
        "  wide_frag[0 .. +8] = convert<f32> x_frag[0 .. +8]\n"
        "  unrolled i = 0; < 8; += 1\n"
        "    element = load wide_frag[i]\n"
        "    other = shuffle_xor(element, 4) width 8\n"
        "    store tile[thread] = other, proved\n"
        "    barrier\n"
        "  if row < rows\n"
        "    store y[cast<i64>(row) * 8 .. +4] = wide_frag[0 .. +4], proved\n"
        "  else\n"
        "    warp barrier\n");
}

}  // namespace
}  // namespace tessera
