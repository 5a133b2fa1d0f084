// One planted bug per trap, with the text that its author would read.

#include <functional>
#include <string>

#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

using ir::Op;

Error trap_of(const ThreadKernel& k, const std::vector<Argument>& arguments) {
  Options options;
  options.traps = true;
  try {
    k.run(arguments, options);
  } catch (const Error& error) {
    return error;
  }
  FAIL("no trap");
  std::abort();
}

/// The message without the excerpt of the source.
std::string text(const Error& error) {
  return error.fields().what;
}

}  // namespace

TEST_CASE("OOB: a logical index past its extent", "[cpu][traps]") {
  ThreadKernel k(32, {integer(1), integer(2)});
  const Expr rows = k.dim("rows");
  const ArrayRef x = k.tensor("x", DType::bf16, {rows, integer(7168)}, true);
  // Block 1, thread 3 reads the column past the end; the address itself exists (it is in the next
  // row).
  const auto wrong =
      ir::select(ir::binary(Op::eq, k.block(1) * integer(100) + k.thread(), integer(103)),
                 integer(7168), k.thread());
  int line = 0;
  k.load(x, {integer(12), wrong}), line = __LINE__;
  std::vector<uint16_t> input(20 * 7168);
  const Error error = trap_of(k, {argument(20), argument(input, DType::bf16)});
  CHECK(error.kind() == ErrorKind::trap);
  CHECK(error.code() == "OOB");
  CHECK(error.op() == "kernel");
  CHECK(error.argument() == "x");
  CHECK(text(error) == "x[12, 7168] is out of bounds: extent 7168 (thread 3, block (0, 1, 0))");
  CHECK(error.expected() == "index 1 in [0, 7167]");
  CHECK(error.got() == "7168");
  CHECK(error.loc().line == line);
  CHECK(to_string(error.loc()) == "traps_test.cpp:" + std::to_string(line));
  CHECK(std::string(error.what()).find("tessera: kernel: x[12, 7168] is out of bounds") == 0);
}

TEST_CASE("OOB: the tail of a vector and a negative index", "[cpu][traps]") {
  std::vector<float> input(64);
  {
    ThreadKernel k(32);
    const ArrayRef x = k.tensor("x", DType::f32, {integer(62)}, true);
    const ArrayRef slots = k.registers("slots", DType::f32, 4);
    k.load_vector(x, {k.thread() % integer(16) * integer(4)}, 4, slots);
    CHECK(text(trap_of(k, {argument(input, DType::f32)})) ==
          "x[60..63] is out of bounds: extent 62 (thread 15, block (0, 0, 0))");
  }
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(64)});
  k.store(x, {k.thread() - integer(1)}, number(0));
  CHECK(text(trap_of(k, {argument(input, DType::f32)})) ==
        "x[-1] is out of bounds: extent 64 (thread 0, block (0, 0, 0))");
}

TEST_CASE("OOB: memory that is smaller than the declared shape", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(32)});
  k.store(x, {k.thread()}, number(0));
  std::vector<float> output(20);
  const Error error = trap_of(k, {argument(output, DType::f32)});
  CHECK(error.code() == "OOB");
  CHECK(text(error) == "x[20] is outside the memory of x (thread 20, block (0, 0, 0))");
  CHECK(error.expected() == "1 of 20 elements");
  CHECK(error.got() == "element offset 20");
}

TEST_CASE("OOB: an address before the memory, without logical indices", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(64)});
  k.store(x, {k.thread() - integer(2)}, number(0));
  std::get<Store>(k.program().body.back().node).to.indices.clear();
  std::vector<float> output(64);
  CHECK(text(trap_of(k, {argument(output, DType::f32)})) ==
        "x[-2] is outside the memory of x (thread 0, block (0, 0, 0))");
}

TEST_CASE("OOB: shared memory and registers", "[cpu][traps]") {
  {
    ThreadKernel k(64);
    const ArrayRef tile = k.shared("tile", DType::i32, {7, 9});
    k.store(tile, {k.thread() / integer(9), k.thread() % integer(9)}, integer(0));
    CHECK(text(trap_of(k, {})) ==
          "tile[7, 0] is out of bounds: extent 7 (thread 63, block (0, 0, 0))");
  }
  ThreadKernel k(64);
  const ArrayRef slots = k.registers("slots", DType::i32, 4);
  k.loop(integer(0), integer(5), integer(1),
         [&](const Expr& i) { k.store(slots, {i}, integer(0)); });
  const Error error = trap_of(k, {});
  CHECK(error.code() == "OOB");
  CHECK(text(error) == "slots[4] is out of bounds: extent 4 (thread 0, block (0, 0, 0))");
}

TEST_CASE("MISALIGNED: a vector at an address that is no multiple of its size", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::bf16, {integer(512)}, true);
  const ArrayRef slots = k.registers("slots", DType::bf16, 8);
  const auto shift = ir::select(less(k.thread(), integer(5)), integer(0), integer(2));
  k.load_vector(x, {k.thread() * integer(8) + shift}, 8, slots);
  std::vector<uint16_t> input(512);
  const Error error = trap_of(k, {argument(input, DType::bf16)});
  CHECK(error.code() == "MISALIGNED");
  CHECK(text(error) == "x[42..49] is not aligned for a 16-byte access (thread 5, block (0, 0, 0))");
  CHECK(error.expected() == "an address that is a multiple of 16 bytes");
  CHECK(error.got() == "a remainder of 4 bytes");
}

TEST_CASE("UNINITIALISED: a register slot that a thread never wrote", "[cpu][traps]") {
  ThreadKernel k(64);
  const ArrayRef acc = k.registers("acc", DType::f32, 4);
  k.branch(less(k.thread(), integer(40)), [&] { k.store(acc, {integer(3)}, number(1)); });
  k.load(acc, {integer(3)});
  const Error error = trap_of(k, {});
  CHECK(error.code() == "UNINITIALISED");
  CHECK(text(error) == "acc[3] is read before it is written (thread 40, block (0, 0, 0))");
}

TEST_CASE("UNINITIALISED: vectors, converts and a scope that starts again", "[cpu][traps]") {
  std::vector<float> output(64);
  {
    ThreadKernel k(32);
    const ArrayRef y = k.tensor("y", DType::f32, {integer(64)});
    const ArrayRef slots = k.registers("slots", DType::f32, 2);
    k.store(slots, {integer(0)}, number(1));
    k.store_vector(y, {k.thread() * integer(2)}, 2, slots);
    CHECK(text(trap_of(k, {argument(output, DType::f32)})) ==
          "slots[1] is read before it is written (thread 0, block (0, 0, 0))");
  }
  {
    ThreadKernel k(32);
    const ArrayRef from = k.registers("from", DType::f32, 2);
    const ArrayRef into = k.registers("into", DType::bf16, 2);
    k.convert(into, from, 2);
    CHECK(text(trap_of(k, {})) ==
          "from[0] is read before it is written (thread 0, block (0, 0, 0))");
  }
  ThreadKernel k(32);
  k.loop(integer(0), integer(2), integer(1), [&](const Expr& i) {
    const ArrayRef fresh = k.registers("fresh", DType::i32, 1);
    k.branch(ir::binary(Op::eq, i, integer(0)), [&] { k.store(fresh, {integer(0)}, i); });
    k.load(fresh, {integer(0)});  // the value of round 0 is gone in round 1
  });
  CHECK(trap_of(k, {}).code() == "UNINITIALISED");
}

TEST_CASE("UNINITIALISED: shared bytes, also those that an earlier block wrote", "[cpu][traps]") {
  ThreadKernel k(32, {integer(2)});
  const ArrayRef tile = k.shared("tile", DType::i32, {4, 8});
  k.branch(ir::binary(Op::eq, k.block(0), integer(0)), [&] {
    k.store(tile, {k.thread() / integer(8), k.thread() % integer(8)}, integer(1));
  });
  k.load(tile, {k.thread() / integer(8), k.thread() % integer(8)});
  const Error error = trap_of(k, {});
  CHECK(error.code() == "UNINITIALISED");
  CHECK(text(error) == "tile[0, 0] is read before it is written (thread 0, block (1, 0, 0))");
}

TEST_CASE("RACE: a read of what another warp wrote without a barrier", "[cpu][traps]") {
  ThreadKernel k(128);
  const ArrayRef tile = k.shared("tile", DType::f32, {4, 32});
  const auto row = k.thread() / integer(32), column = k.thread() % integer(32);
  int write_line = 0, read_line = 0;
  k.store(tile, {row, column}, number(1)), write_line = __LINE__;
  k.load(tile, {integer(3) - row, column}), read_line = __LINE__;
  const Error error = trap_of(k, {});
  CHECK(error.code() == "RACE");
  CHECK(error.argument() == "tile");
  CHECK(text(error) ==
        "race on tile[3, 0]: read here and written by thread 96 with no barrier between "
        "(thread 0, block (0, 0, 0))");
  CHECK(error.loc().line == read_line);
  CHECK(error.fields().related.line == write_line);
}

TEST_CASE("RACE: overwriting what another warp still reads", "[cpu][traps]") {
  ThreadKernel k(64);
  const ArrayRef tile = k.shared("tile", DType::i32, {64});
  k.store(tile, {k.thread()}, integer(1));
  k.barrier();
  k.load(tile, {integer(63) - k.thread()});
  k.store(tile, {k.thread()}, integer(2));
  const Error error = trap_of(k, {});
  CHECK(text(error) ==
        "race on tile[0]: written here and read by thread 63 with no barrier between "
        "(thread 0, block (0, 0, 0))");
}

TEST_CASE("RACE: the last of several readers writes", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef tile = k.shared("tile", DType::i32, {32});
  k.store(tile, {k.thread()}, integer(1));
  k.warp_barrier();
  const Expr last = ir::binary(Op::eq, k.thread(), integer(31));
  k.load(tile, {integer(4)});  // by all threads, 31 is the last
  k.store(tile, {integer(4)}, integer(2), last);
  const Error error = trap_of(k, {});
  CHECK(error.code() == "RACE");
  CHECK(text(error).find("race on tile[4]: written here and read by thread 30") == 0);
}

TEST_CASE("RACE: two threads write one byte in one statement", "[cpu][traps]") {
  ThreadKernel k(64);
  const ArrayRef tile = k.shared("tile", DType::u8, {8});
  k.branch(less(k.thread(), integer(2)),
           [&] { k.store(tile, {integer(5)}, ir::cast(DType::u8, k.thread())); });
  CHECK(text(trap_of(k, {})) ==
        "race on tile[5]: written here and written by thread 0 with no barrier between "
        "(thread 1, block (0, 0, 0))");
}

TEST_CASE("warp barriers and collectives order one warp, not the block", "[cpu][traps]") {
  const auto exchange = [](int threads, int distance, bool by_shuffle) {
    ThreadKernel k(threads);
    const ArrayRef tile = k.shared("tile", DType::i32, {threads});
    k.store(tile, {k.thread()}, k.thread());
    if (by_shuffle) {
      k.collective(ir::CollectiveKind::shuffle, DType::i32, {k.thread(), integer(0)});
    } else {
      k.warp_barrier();
    }
    k.load(tile, {(k.thread() + integer(distance)) % integer(threads)});
    Options options;
    options.traps = true;
    k.run({}, options);
  };
  CHECK_NOTHROW(exchange(32, 1, false));
  CHECK_NOTHROW(exchange(32, 1, true));
  CHECK_NOTHROW(exchange(64, 64, false));
  CHECK_THROWS_AS(exchange(64, 1, false), Error);
  CHECK_THROWS_AS(exchange(64, 32, true), Error);
}

TEST_CASE("a barrier makes shared memory safe again", "[cpu][traps]") {
  ThreadKernel k(256);
  const ArrayRef tile = k.shared("tile", DType::bf16, {256});
  k.loop(integer(0), integer(4), integer(1), [&](const Expr& i) {
    k.store(tile, {k.thread()}, ir::cast(DType::bf16, ir::cast(DType::f32, i)));
    k.barrier();
    for (const int64_t distance : {1, 33, 255}) {
      k.load(tile, {(k.thread() + integer(distance)) % integer(256)});
    }
    k.barrier();
  });
  Options options;
  options.traps = true;
  CHECK_NOTHROW(k.run({}, options));
}

TEST_CASE("DIVERGENT_BARRIER: not every thread arrives", "[cpu][traps]") {
  {
    ThreadKernel k(128);
    int line = 0;
    k.branch(less(k.thread(), integer(64)), [&] { k.barrier(), line = __LINE__; });
    const Error error = trap_of(k, {});
    CHECK(error.code() == "DIVERGENT_BARRIER");
    CHECK(text(error) ==
          "a barrier is reached by 64 of 128 threads; missing (thread 64, block (0, 0, 0))");
    CHECK(error.expected() == "all 128 threads of the block");
    CHECK(error.loc().line == line);
  }
  {
    ThreadKernel k(64);
    k.branch(less(integer(32), k.thread()), [&] { k.warp_barrier(); });
    CHECK(text(trap_of(k, {})) ==
          "a warp barrier is reached by 31 of 32 threads of warp 1; missing "
          "(thread 32, block (0, 0, 0))");
  }
  ThreadKernel k(32);
  k.branch(less(k.thread(), integer(16)),
           [&] { k.collective(ir::CollectiveKind::reduce_add, DType::i32, {k.thread()}); });
  CHECK(text(trap_of(k, {})).find("a warp collective is reached by 16 of 32 threads of warp 0") ==
        0);
}

TEST_CASE("INDEX_OVERFLOW: i32 arithmetic that wraps on its way to an address", "[cpu][traps]") {
  const bool through_let = GENERATE(false, true);
  ThreadKernel k(32);
  const Expr stride = k.dim("stride");
  const ArrayRef x = k.tensor("x", DType::u8, {integer(1 << 30)});
  Expr offset = (k.thread() + integer(100)) * stride;
  if (through_let) offset = k.let(offset);
  k.load(x, {offset});
  std::vector<uint8_t> input(16);
  const Error error = trap_of(k, {argument(1 << 25), argument(input, DType::u8)});
  CHECK(error.code() == "INDEX_OVERFLOW");
  CHECK(text(error) ==
        "i32 overflow in an index: (thread + 100) * stride (thread 0, block (0, 0, 0))");
  CHECK(error.got() == "mul of 100 and 33554432 = 3355443200");
}

TEST_CASE("values may wrap, and so may what a guard excludes", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(32)});
  const Expr huge = k.let(k.thread() * integer(1 << 30) * integer(4));
  k.store(out, {k.thread()}, huge);
  k.load(out, {k.thread() * integer(1 << 30)}, less(k.thread(), integer(1)));
  std::vector<int32_t> output(32);
  Options options;
  options.traps = true;
  CHECK_NOTHROW(k.run({argument(output, DType::i32)}, options));
}

TEST_CASE("WRITE_READ_ONLY and NULL_TENSOR", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(32)}, true);
  k.store(x, {k.thread()}, number(0));
  std::vector<float> data(32);
  const Error read_only = trap_of(k, {argument(data, DType::f32)});
  CHECK(read_only.code() == "WRITE_READ_ONLY");
  CHECK(text(read_only) == "x is written, but declared read-only (thread 0, block (0, 0, 0))");
  const Error null = trap_of(k, {Argument()});
  CHECK(null.code() == "NULL_TENSOR");
  CHECK(text(null) == "x is null and accessed (thread 0, block (0, 0, 0))");
  CHECK(null.argument() == "x");
}

TEST_CASE("DIV_BY_ZERO traps where a thread needs the quotient", "[cpu][traps]") {
  ThreadKernel k(32);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(32)});
  const Expr n = k.dim("n");
  k.branch(less(integer(0), k.thread()),
           [&] { k.store(out, {k.thread()}, integer(7) / (k.thread() - n)); });
  std::vector<int32_t> output(32, 1);
  Options options;
  options.traps = true;
  CHECK_NOTHROW(k.run({argument(output, DType::i32), argument(0)}, options));  // thread 0 is out
  const Error error = trap_of(k, {argument(output, DType::i32), argument(9)});
  CHECK(error.code() == "DIV_BY_ZERO");
  CHECK(text(error) == "division by zero: 7 / (thread - n) (thread 9, block (0, 0, 0))");
  k.run({argument(output, DType::i32), argument(9)});
  CHECK(output[9] == -1);
  CHECK(output[10] == 7);
}

TEST_CASE("arithmetic that is printed as one that cannot wrap traps if it wraps", "[cpu][traps]") {
  std::vector<int32_t> output(32);
  ThreadKernel k(32);
  const ArrayRef y = k.tensor("y", DType::i32, {integer(32)});
  const Expr n = k.dim("n");
  const_cast<ir::Var&>(*n->var).upper = integer(10);  // what the host has checked
  const_cast<ir::Var&>(*n->var).lower = integer(1);
  k.store(y, {k.thread()}, n * integer(1000));
  const Error error = trap_of(k, {argument(output, DType::i32), argument(3'000'000)});
  CHECK(error.code() == "INDEX_OVERFLOW");
  CHECK(text(error).find("i32 overflow in what cannot overflow, a bug in Tessera: n * 1000") == 0);
  k.run({argument(output, DType::i32), argument(9)}, {.traps = true});
  CHECK(output[31] == 9000);

  ThreadKernel wraps(32);
  const ArrayRef z = wraps.tensor("z", DType::i32, {integer(32)});
  wraps.store(z, {wraps.thread()}, wraps.scalar("s", DType::i32) * integer(1000));
  wraps.run({argument(output, DType::i32), argument(3'000'000)}, {.traps = true});
  CHECK(output[31] == static_cast<int32_t>(3'000'000'000 - (int64_t{1} << 32)));
}

}  // namespace tessera::codegen::cpu
