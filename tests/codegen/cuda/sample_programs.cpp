#include "tests/codegen/cuda/sample_programs.h"

#include "tests/support/program_builder.h"

namespace tessera::test {

using ir::CollectiveKind;
using ir::Op;

Program cast_rows() {
  ProgramBuilder k("cast_rows", 256);
  const Expr tokens = k.dim("tokens");
  const ArrayRef x = k.input("x", DType::bf16, {tokens, number(7168)});
  const ArrayRef out = k.output("out", DType::e4m3, {tokens, number(7168)});
  const ArrayRef out_sf = k.output("out_sf", DType::f32, {tokens, number(56)});
  k.grid({number(56), (tokens + number(15)) / number(16)});
  k.min_blocks(4);
  const Expr group = k.block("group", 0);
  const Expr block_row = k.block("block_row", 1);
  const Expr row = k.let("row", block_row * number(16) + k.thread() / number(16));
  const Expr col = k.let("col", k.thread() % number(16) * number(8));
  const Expr inside = k.let("inside", row < tokens);

  k.comment("copy x to x_frag", 31);
  const ArrayRef x_frag = k.registers("x_frag", DType::bf16, 8);
  const Expr offset = k.let("offset", wide(row) * number(7168) + (group * number(128) + col));
  k.load({x_frag, number(0)}, x, offset, 8, inside);

  k.comment("reduce_absmax x_frag over columns", 32);
  const ArrayRef amax = k.registers("amax", DType::f32, 1, true);
  k.unrolled("i", 8, [&](const Expr& i) {
    const Expr so_far = k.load("so_far", amax, number(0));
    const Expr element = k.load("element", x_frag, i);
    k.store(amax, number(0),
            ir::binary(Op::max, so_far, ir::cast(DType::f32, ir::unary(Op::abs, element))));
  });
  for (const int mask : {8, 4, 2, 1}) {
    const Expr mine = k.load("mine", amax, number(0));
    const Expr other = k.collective("other", CollectiveKind::shuffle_xor, {mine, number(mask)});
    const Expr again = k.load("again", amax, number(0));
    k.store(amax, number(0), ir::binary(Op::max, again, other));
  }

  k.comment("scale and store", 35);
  const Expr largest = k.load("largest", amax, number(0));
  const Expr bounded = k.let("bounded", ir::binary(Op::max, largest, f32(9.999999747378752e-05)));
  const Expr sf = k.let("sf", bounded / f32(448));
  const Expr inverse = k.let("inverse", f32(448) / bounded);
  const ArrayRef scaled = k.registers("scaled", DType::f32, 8);
  k.unrolled("i", 8, [&](const Expr& i) {
    const Expr element = k.load("element", x_frag, i);
    k.store(scaled, i, ir::cast(DType::f32, element) * inverse);
  });
  const ArrayRef q = k.registers("q", DType::e4m3, 8);
  k.convert({q, number(0)}, {scaled, number(0)}, 8);
  k.store(out, offset, {q, number(0)}, 8, inside);
  k.store(out_sf, wide(row) * number(56) + group, sf, inside && ir::binary(Op::eq, col, number(0)));
  return k.finish();
}

namespace {

// Shared memory: two arrays of one arena, a barrier, a transposed read.
Program transpose_tile() {
  ProgramBuilder k("transpose_tile", 1024);
  k.min_blocks(2);  // more threads than some SMs hold
  const ArrayRef x = k.input("x", DType::f32, {number(32), number(32)});
  const ArrayRef bias = k.input("bias", DType::f32, {number(32)});
  const ArrayRef y = k.output("y", DType::f32, {number(32), number(32)});
  const ArrayRef tile = k.shared("tile", DType::f32, {number(32), number(33)});
  const ArrayRef row_bias = k.shared("row_bias", DType::f32, {number(32)});
  const Expr row = k.let("row", k.thread() / number(32));
  const Expr col = k.let("col", k.thread() % number(32));
  k.comment("copy x to tile", 12);
  const Expr element = k.load("element", x, wide(k.thread()));
  k.store(tile, row * number(33) + col, element);
  k.comment("copy bias to row_bias", 13);
  k.branch(k.thread() < number(32), [&] {
    const Expr loaded = k.load("loaded", bias, wide(k.thread()));
    k.store(row_bias, k.thread(), loaded);
  });
  k.barrier();
  k.comment("copy tile to y, transposed", 14);
  const Expr transposed = k.load("transposed", tile, col * number(33) + row);
  const Expr added = k.load("added", row_bias, col);
  k.store(y, wide(k.thread()), transposed + added);
  return k.finish();
}

// Warp collectives on every width of value.
Program warp_votes() {
  ProgramBuilder k("warp_votes", 32);
  const ArrayRef keys = k.input("keys", DType::i64, {number(32)});
  const ArrayRef halves = k.input("halves", DType::f16, {number(32)});
  const ArrayRef flags = k.output("flags", DType::boolean, {number(32)});
  const ArrayRef counts = k.output("counts", DType::i32, {number(32)});
  const ArrayRef last = k.output("last", DType::f16, {number(32)});
  const Expr lane = k.let("lane", k.thread() % number(32));
  const Expr key = k.load("key", keys, wide(lane));
  const Expr peers = k.collective("peers", CollectiveKind::match_any, {key});
  const Expr chosen = k.let("chosen", key < ir::constant(DType::i64, 5));
  const Expr any = k.collective("any", CollectiveKind::vote_any, {chosen});
  const Expr ballot = k.collective("ballot", CollectiveKind::ballot, {chosen});
  const Expr before = k.let("before", ir::binary(Op::bit_and, ballot,
                                                 ir::binary(Op::shl, ir::constant(DType::u32, 1),
                                                            ir::cast(DType::u32, lane)) -
                                                     ir::constant(DType::u32, 1)));
  const Expr rank = k.let("rank", ir::unary(Op::popcount, before));
  const Expr most = k.collective("most", CollectiveKind::reduce_max, {rank});
  const Expr bits = k.collective("bits", CollectiveKind::reduce_or, {rank});
  const Expr half = k.load("half", halves, wide(lane));
  const Expr from_eight = k.collective("from_eight", CollectiveKind::shuffle, {half, number(7)}, 8);
  k.collective("unused", CollectiveKind::vote_all, {chosen});
  k.warp_barrier();
  k.store(flags, wide(lane), any);
  k.store(counts, wide(lane), ir::unary(Op::popcount, peers) + most + bits);
  k.store(last, wide(lane), from_eight);
  return k.finish();
}

// Loops and branches; sibling loops share the name of their variable, nested ones do not.
Program control_flow() {
  ProgramBuilder k("control_flow", 64);
  const Expr count = k.dim("count");
  const Expr limit = k.scalar("limit", DType::i32);
  const ArrayRef x = k.input("x", DType::i32, {count});
  const ArrayRef y = k.output("y", DType::i32, {count});
  const ArrayRef total = k.registers("total", DType::i32, 1, true);
  k.loop("i", k.thread(), count, number(64), [&](const Expr& i) {
    const Expr element = k.load("element", x, wide(i));
    k.branch(
        element < limit,
        [&] {
          const Expr so_far = k.load("so_far", total, number(0));
          k.store(total, number(0), so_far + element);
        },
        [&] {
          k.branch(ir::binary(Op::eq, element, limit), [&] { k.store(y, wide(i), element); });
        });
  });
  k.loop("i", number(0), number(4), number(1), [&](const Expr& outer) {
    k.loop("i", outer, number(4), number(2), [&](const Expr& inner) {
      const Expr sum = k.load("sum", total, number(0));
      k.store(y, wide(outer * number(4) + inner), sum);
    });
  });
  return k.finish();
}

// Conversions: pairs where the target has them, through f32, through one correctly rounded step.
Program conversions() {
  ProgramBuilder k("conversions", 32);
  const ArrayRef x = k.input("x", DType::bf16, {number(256)});
  const ArrayRef ids = k.input("ids", DType::i64, {number(32)});
  const ArrayRef halves = k.output("halves", DType::f16, {number(256)});
  const ArrayRef codes = k.output("codes", DType::e2m1, {number(256)});
  const ArrayRef rounded = k.output("rounded", DType::bf16, {number(32)});
  const ArrayRef bytes = k.output("bytes", DType::u8, {number(32)});
  const Expr offset = k.let("offset", wide(k.thread()) * number(8));
  const ArrayRef x_frag = k.registers("x_frag", DType::bf16, 8);
  k.load({x_frag, number(0)}, x, offset, 8);
  const ArrayRef half_frag = k.registers("half_frag", DType::f16, 8);
  k.unrolled("part", 2, [&](const Expr& part) {
    k.convert({half_frag, part * number(4)}, {x_frag, part * number(4)}, 4);
  });
  k.store(halves, offset, {half_frag, number(0)}, 8);
  const ArrayRef code_frag = k.registers("code_frag", DType::e2m1, 8);
  k.convert({code_frag, number(0)}, {half_frag, number(0)}, 8);
  k.store(codes, offset, {code_frag, number(0)}, 8);
  const Expr id = k.load("id", ids, wide(k.thread()));
  k.store(rounded, wide(k.thread()), ir::cast(DType::bf16, id));
  const Expr first = k.load("first", x_frag, number(0));
  const Expr second = k.load("second", x_frag, number(1));
  k.store(bytes, wide(k.thread()), ir::cast(DType::u8, first + second));
  return k.finish();
}

// Integer arithmetic on data wraps, arithmetic on indices is plain; shifts saturate.
Program integers() {
  ProgramBuilder k("integers", 32);
  const ArrayRef seeds = k.input("seeds", DType::i64, {number(32)});
  const ArrayRef amounts = k.input("amounts", DType::u32, {number(32)});
  const ArrayRef hashes = k.output("hashes", DType::i64, {number(32)});
  const ArrayRef small = k.output("small", DType::u16, {number(32)});
  const Expr place = k.let("place", wide(k.thread() * number(3) % number(32)));
  const Expr seed = k.load("seed", seeds, place);
  const Expr amount = k.load("amount", amounts, wide(k.thread()));
  const Expr mixed = k.let(
      "mixed", ir::binary(Op::bit_xor, seed * ir::constant(DType::i64, 0x9E3779B97F4A7C1), seed));
  const Expr shifted =
      k.let("shifted", ir::binary(Op::shr, mixed, amount) % ir::constant(DType::i64, 97));
  k.store(hashes, place, shifted);
  const Expr low = k.let("low", ir::cast(DType::u16, ir::binary(Op::bit_and, amount,
                                                                ir::constant(DType::u32, 0xFFFF))));
  k.store(small, place, low * low);
  return k.finish();
}

}  // namespace

std::vector<Program> sample_programs() {
  return {cast_rows(), transpose_tile(), warp_votes(), control_flow(), conversions(), integers()};
}

}  // namespace tessera::test
