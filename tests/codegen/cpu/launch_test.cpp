// Grids, arguments, workers, and a whole kernel.

#include <bit>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>

#include "codegen/cpu/arithmetic/formats.h"
#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

using ir::Op;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Casts bf16 [rows, columns] to e4m3 with one f32 scale per 128 columns. A thread holds 8 columns
/// of 1 of 8 rows; 16 threads share a group and agree on its maximum by shuffles.
ThreadKernel cast_kernel(int64_t columns) {
  const int64_t groups = columns / 128;
  // The grid names a dim, so the kernel is made in two steps.
  ThreadKernel k(128, {integer(1), integer(groups)});
  const ArrayRef x = k.tensor("x", DType::bf16, {}, true);
  const ArrayRef out = k.tensor("out", DType::e4m3, {});
  const ArrayRef sf = k.tensor("out_sf", DType::f32, {});
  const Expr rows = k.dim("rows");
  k.program().grid[0] = (rows + integer(31)) / integer(32);
  std::const_pointer_cast<Array>(x)->shape = {rows, integer(columns)};
  std::const_pointer_cast<Array>(out)->shape = {rows, integer(columns)};
  std::const_pointer_cast<Array>(sf)->shape = {rows, integer(groups)};

  const ArrayRef half = k.registers("half", DType::bf16, 32);
  const ArrayRef wide = k.registers("wide", DType::f32, 32);
  const ArrayRef code = k.registers("code", DType::e4m3, 32);
  const auto row_of = [&](const Expr& i) {
    return k.block(0) * integer(32) + i * integer(8) + k.thread() / integer(16);
  };
  const Expr column = k.block(1) * integer(128) + k.thread() % integer(16) * integer(8);
  k.loop(integer(0), integer(4), integer(1), [&](const Expr& i) {
    k.load_vector(x, {row_of(i), column}, 8, half, i * integer(8), less(row_of(i), rows));
  });
  k.convert(wide, half, 32);
  k.loop(integer(0), integer(4), integer(1), [&](const Expr& i) {
    const ArrayRef amax = k.registers("amax", DType::f32, 1, true);
    k.loop(integer(0), integer(8), integer(1), [&](const Expr& j) {
      const Expr a = ir::unary(Op::abs, k.load(wide, {i * integer(8) + j}));
      k.store(amax, {integer(0)}, ir::binary(Op::max, k.load(amax, {integer(0)}), a));
    });
    Expr a = k.load(amax, {integer(0)});
    for (const int64_t mask : {8, 4, 2, 1}) {
      const Expr other =
          k.collective(ir::CollectiveKind::shuffle_xor, DType::f32, {a, integer(mask)});
      a = k.let(ir::binary(Op::max, a, other));
    }
    const Expr c = k.let(ir::binary(Op::max, a, number(double{1e-4f})));
    const Expr inverse = k.let(ir::binary(Op::div, number(448), c));
    k.loop(integer(0), integer(8), integer(1), [&](const Expr& j) {
      const Expr slot = i * integer(8) + j;
      k.store(code, {slot}, ir::cast(DType::e4m3, k.load(wide, {slot}) * inverse));
    });
    const Expr inside = less(row_of(i), rows);
    const Expr first = ir::binary(Op::eq, k.thread() % integer(16), integer(0));
    k.store(sf, {row_of(i), k.block(1)}, ir::binary(Op::div, c, number(448)), inside && first);
    k.store_vector(out, {row_of(i), column}, 8, code, i * integer(8), inside);
  });
  return k;
}

struct CastTensors {
  std::vector<uint16_t> x;
  std::vector<uint8_t> out;
  std::vector<float> sf;
  std::vector<Argument> arguments;

  CastTensors(int64_t rows, int64_t columns)
      : x(static_cast<size_t>(rows * columns)), out(x.size()), sf(x.size() / 128) {
    std::mt19937 random(3);
    for (uint16_t& value : x) {
      const auto u = static_cast<float>(random()) * 0x1p-31f - 1.0f;
      value = Bf16::encode(u * u * u * 10.0f);
    }
    arguments = {argument(x, DType::bf16), argument(out, DType::e4m3), argument(sf, DType::f32),
                 argument(rows)};
  }
};

}  // namespace

TEST_CASE("each block of a grid runs once", "[cpu][launch]") {
  const int workers = GENERATE(1, 2, 7);
  ThreadKernel k(32, {integer(5), integer(3), integer(2)});
  const ArrayRef out = k.tensor("out", DType::i32, {integer(30), integer(32)});
  const Expr block = (k.block(2) * integer(3) + k.block(1)) * integer(5) + k.block(0);
  const Expr old = k.load(out, {block, k.thread()});
  k.store(out, {block, k.thread()}, old + block + integer(1));
  std::vector<int32_t> output(960, 0);
  Options options;
  options.workers = workers;
  k.run({argument(output, DType::i32)}, options);
  for (size_t i = 0; i < 960; ++i) CHECK(output[i] == static_cast<int32_t>(i / 32) + 1);
}

TEST_CASE("the example of the header works", "[cpu][launch]") {
  ThreadKernel k(32);
  const ArrayRef out = k.tensor("x", DType::i32, {integer(32)});
  k.store(out, {k.thread()}, k.dim("rows"));
  std::vector<int32_t> data(32);
  const TensorView x(data.data(), DType::i32, {32});
  const int64_t rows = 5;

  const Executable executable(k.program());
  const Argument arguments[] = {{.tensor = x}, {.integer = rows}};
  executable.run(arguments, {.traps = true});
  CHECK(data == std::vector<int32_t>(32, 5));
}

TEST_CASE("an empty grid does nothing", "[cpu][launch]") {
  ThreadKernel k(32, {integer(4), integer(1)});
  const ArrayRef out = k.tensor("out", DType::i32, {integer(32)});
  k.program().grid[1] = k.dim("n");
  k.store(out, {k.thread()}, integer(1));
  std::vector<int32_t> output(32, -1);
  Counts counts;
  counts.barriers = 77;
  Options options;
  options.counts = &counts;
  k.run({argument(output, DType::i32), argument(0)}, options);
  CHECK(output == std::vector<int32_t>(32, -1));
  CHECK(counts.barriers == 0);
  k.run({Argument(), argument(0)});  // without memory
}

TEST_CASE("results and counts do not depend on the number of workers", "[cpu][launch]") {
  CastTensors one(100, 256), many(100, 256);
  const ThreadKernel k = cast_kernel(256);
  Counts counts_one, counts_many;
  Options options;
  options.workers = 1;
  options.counts = &counts_one;
  k.run(one.arguments, options);
  options.workers = 5;
  options.counts = &counts_many;
  k.run(many.arguments, options);
  CHECK(one.out == many.out);
  CHECK(one.sf == many.sf);
  CHECK(counts_one.global_load_sectors == 100 * 256 * 2 / 32);
  CHECK(counts_one.global_load_sectors == counts_many.global_load_sectors);
  CHECK(counts_one.global_load_bytes == 100 * 256 * 2);
  CHECK(counts_one.global_store_bytes == 100 * 256 + 100 * 2 * 4);
  CHECK(counts_one.shuffles == counts_many.shuffles);
  CHECK(counts_one.guards == counts_many.guards);
}

TEST_CASE("the trap of the lowest block wins, even when another comes first", "[cpu][launch]") {
  // Block 10 spins before it fails; the worker that gets block 500 fails long before.
  ThreadKernel k(32, {integer(1000)});
  const ArrayRef x = k.tensor("x", DType::i32, {integer(1)});
  const auto is_block = [&](int64_t index) {
    return ir::binary(Op::eq, k.block(0), integer(index));
  };
  const ArrayRef sum = k.registers("sum", DType::i32, 1, true);
  const Expr spins = ir::select(is_block(10), integer(100000), integer(0));
  k.loop(integer(0), spins, integer(1),
         [&](const Expr& i) { k.store(sum, {integer(0)}, k.load(sum, {integer(0)}) + i); });
  const Expr fails = ir::binary(Op::logical_or, is_block(10), is_block(500));
  k.store(x, {k.block(0)}, k.load(sum, {integer(0)}), fails);
  std::vector<int32_t> data(1);
  Options options;
  options.traps = true;
  options.workers = 4;
  CHECK(message_of([&] {
          k.run({argument(data, DType::i32)}, options);
        }).find("x[10] is out of bounds: extent 1 (thread 0, block (10, 0, 0))") !=
        std::string::npos);
}

TEST_CASE("a cast kernel gives the bytes of its definition, with and without traps",
          "[cpu][launch]") {
  const bool traps = GENERATE(false, true);
  const int64_t rows = GENERATE(1, 33, 64);
  CastTensors t(rows, 384);
  Options options;
  options.traps = traps;
  cast_kernel(384).run(t.arguments, options);
  for (size_t group = 0; group < t.sf.size(); ++group) {
    float amax = 1e-4f;
    for (size_t i = 0; i < 128; ++i) {
      amax = std::fmax(amax, std::fabs(Bf16::decode(t.x[group * 128 + i])));
    }
    REQUIRE(t.sf[group] == amax / 448.0f);
    const float inverse = 448.0f / amax;
    for (size_t i = 0; i < 128; ++i) {
      const size_t at = group * 128 + i;
      REQUIRE(t.out[at] == E4m3::encode(Bf16::decode(t.x[at]) * inverse));
    }
  }
}

TEST_CASE("wrong arguments are named", "[cpu][launch]") {
  ThreadKernel k(32);
  k.tensor("x", DType::f32, {integer(32)});
  k.dim("n");
  std::vector<float> data(32);
  std::vector<uint16_t> halves(32);
  const auto run = [&](std::vector<Argument> arguments) {
    return message_of([&] { k.run(arguments); });
  };
  CHECK(run({}) ==
        "tessera: kernel: the number of arguments is wrong\n  expected  2\n  got       0");
  CHECK(run({argument(halves, DType::bf16), argument(1)}) ==
        "tessera: kernel: argument 'x' has the wrong dtype\n  expected  f32\n  got       bf16");
  CHECK(run({argument(data, DType::f32), argument(int64_t{1} << 40)}) ==
        "tessera: kernel: argument 'n' is out of range\n  expected  i32\n  got       "
        "1099511627776");
  Argument device = argument(data, DType::f32);
  device.tensor.device = Device::cuda(1);
  CHECK(run({device, argument(1)}) ==
        "tessera: kernel: argument 'x' is on the wrong device\n  expected  cpu\n  got       "
        "cuda:1");
}

TEST_CASE("scalars arrive in their dtype", "[cpu][launch]") {
  ThreadKernel k(1);
  const ArrayRef out = k.tensor("out", DType::f32, {integer(4)});
  const auto put = [&](int64_t i, const Expr& value) {
    k.store(out, {integer(i)}, ir::cast(DType::f32, value));
  };
  put(0, k.scalar("f", DType::f32));
  put(1, k.scalar("h", DType::bf16));
  put(2, k.scalar("b", DType::boolean));
  put(3, k.scalar("u", DType::u64));
  std::vector<float> output(4);
  Argument f, h;
  f.number = 0.1;
  h.number = 1.00390625;  // a tie between two bf16 values
  k.run({argument(output, DType::f32), f, h, argument(5), argument(1000)});
  CHECK(output == std::vector<float>{0.1f, 1.0f, 1.0f, 1000.0f});
}

TEST_CASE("blocks that wait for each other and fit on no GPU at once are refused, not kept",
          "[cpu][launch]") {
  const auto run = [](int64_t blocks) -> std::string {
    ThreadKernel k(256, {integer(blocks)});
    const ArrayRef out = k.tensor("out", DType::f32, {integer(1)});
    k.shared("s", DType::f32, {8192});
    k.store(out, {integer(0)}, number(1), less(k.block(0), integer(1)));
    k.program().cooperative = true;
    std::vector<float> output(1);
    try {
      k.run({argument(output, DType::f32)});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::argument);
      return error.what();
    }
    return {};
  };
  CHECK(run(2).empty());
  CHECK(
      run(2000) ==
      "tessera: kernel: the blocks of the grid wait for each other, and fit on no device at once\n"
      "  expected  at most 1152 blocks of 256 threads and 32768 bytes of shared memory\n"
      "  got       2000 x 1 x 1 blocks\n"
      "  hint      let each block do more, for example by k.persistent");
}

// Not part of a normal run: test_codegen "[executor-speed]" prints seconds.
TEST_CASE("casting 8001 x 7168 is fast enough to be the embedded default",
          "[.][executor-speed][slow]") {
  CastTensors t(8001, 7168);
  const ThreadKernel k = cast_kernel(7168);
  const Executable executable(k.program());
  Counts counts;
  for (const bool traps : {false, true}) {
    for (const bool count : {false, true}) {
      Options options;
      options.traps = traps;
      options.counts = count ? &counts : nullptr;
      const auto start = std::chrono::steady_clock::now();
      executable.run(t.arguments, options);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      std::cout << "traps " << traps << " counts " << count << ": " << seconds.count() << " s\n";
      CHECK(seconds.count() < (traps ? 150 : 15));
    }
  }
}

}  // namespace tessera::codegen::cpu
