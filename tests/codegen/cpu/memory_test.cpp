// Loads, stores, vectors, conversions of register arrays and packed 4-bit data.

#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

Options with_traps() {
  Options options;
  options.traps = true;
  return options;
}

}  // namespace

TEST_CASE("vectors of every width and element size arrive in order", "[cpu][memory]") {
  const auto check = [](DType type, auto element) {
    using T = decltype(element);
    for (const int width : {1, 2, 4, 8, 16}) {
      if (width * bytes(type) > 16) continue;
      CAPTURE(name(type), width);
      const int64_t total = int64_t{64} * width;
      ThreadKernel k(64);
      const ArrayRef x = k.tensor("x", type, {integer(total)}, true);
      const ArrayRef y = k.tensor("y", type, {integer(total)});
      const ArrayRef slots = k.registers("slots", type, width + 1);
      // Reversed over the threads, so that a mix-up of threads shows.
      const Expr mirrored = (integer(63) - k.thread()) * integer(width);
      k.load_vector(x, {mirrored}, width, slots, integer(1));
      k.store_vector(y, {k.thread() * integer(width)}, width, slots, integer(1));
      std::vector<T> input, output(static_cast<size_t>(total));
      for (int64_t i = 0; i < total; ++i) input.push_back(static_cast<T>(i * 37 + 11));
      k.run({argument(input, type), argument(output, type)}, with_traps());
      for (size_t t = 0; t < 64; ++t) {
        for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
          const auto w = static_cast<size_t>(width);
          REQUIRE(output[t * w + i] == input[(63 - t) * w + i]);
        }
      }
    }
  };
  check(DType::u8, uint8_t{});
  check(DType::bf16, uint16_t{});
  check(DType::f16, uint16_t{});
  check(DType::i32, int32_t{});
  check(DType::i64, int64_t{});
}

TEST_CASE("a guard that fails reads zero and writes nothing", "[cpu][memory]") {
  const bool traps = GENERATE(false, true);
  const int64_t n = GENERATE(0, 5, 64);
  CAPTURE(traps, n);
  ThreadKernel k(64);
  const Expr dim = k.dim("n");
  const ArrayRef x = k.tensor("x", DType::i32, {dim});
  const ArrayRef y = k.tensor("y", DType::i32, {dim});
  const ArrayRef all = k.tensor("all", DType::i32, {integer(64)});
  const ArrayRef slot = k.registers("slot", DType::i32, 1);
  const Expr inside = less(k.thread(), dim);
  const Expr v = k.load(x, {k.thread()}, inside);
  k.load_vector(x, {k.thread()}, 1, slot, integer(0), inside);
  k.store(y, {k.thread()}, v, inside);
  k.store(all, {k.thread()}, v + k.load(slot, {integer(0)}));
  // Exactly n elements exist: an access past them would be seen by the sanitizers and by the traps.
  std::vector<int32_t> input(static_cast<size_t>(n), 3), output(static_cast<size_t>(n), -1);
  std::vector<int32_t> sums(64, -1);
  Options options;
  options.traps = traps;
  Argument absent;  // no elements, no memory
  k.run({argument(n), n > 0 ? argument(input, DType::i32) : absent,
         n > 0 ? argument(output, DType::i32) : absent, argument(sums, DType::i32)},
        options);
  CHECK(output == input);
  for (int64_t t = 0; t < 64; ++t) CHECK(sums[static_cast<size_t>(t)] == (t < n ? 6 : 0));
}

TEST_CASE("shared memory exchanges values between threads", "[cpu][memory]") {
  ThreadKernel k(128);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(128)});
  k.shared("other", DType::u8, {100});
  const ArrayRef tile = k.shared("tile", DType::i32, {128});
  k.loop(integer(0), integer(3), integer(1), [&](const Expr& round) {
    k.store(tile, {k.thread()}, k.thread() * integer(10) + round);
    k.barrier();
    const Expr v = k.load(tile, {integer(127) - k.thread()});
    k.barrier();
    k.store(out, {k.thread()}, v);
  });
  std::vector<int32_t> output(128);
  k.run({argument(output, DType::i32)}, with_traps());
  for (int t = 0; t < 128; ++t) CHECK(output[static_cast<size_t>(t)] == (127 - t) * 10 + 2);
}

TEST_CASE("packed 4-bit elements sit two per byte, the even one low", "[cpu][memory]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::e2m1, {integer(256)});
  const ArrayRef y = k.tensor("y", DType::e2m1, {integer(256)});
  const ArrayRef code = k.tensor("code", DType::u8, {integer(32)});
  const ArrayRef tile = k.shared("tile", DType::e2m1, {256});
  const ArrayRef slots = k.registers("slots", DType::e2m1, 8);
  k.load_vector(x, {k.thread() * integer(8)}, 8, slots);
  k.store_vector(tile, {k.thread() * integer(8)}, 8, slots);
  k.store(code, {k.thread()},
          ir::cast(DType::u8, ir::cast(DType::f32, k.load(slots, {integer(1)}))));
  const ArrayRef again = k.registers("again", DType::e2m1, 8);
  k.load_vector(tile, {k.thread() * integer(8)}, 8, again);
  k.store_vector(y, {k.thread() * integer(8)}, 8, again);
  std::vector<uint8_t> input, output(128), odd(32);
  for (int i = 0; i < 128; ++i) input.push_back(static_cast<uint8_t>(i * 7 + 0x20));
  k.run({argument(input, DType::i8), argument(output, DType::i8), argument(odd, DType::u8)},
        with_traps());
  CHECK(output == input);
  const uint8_t truncated[] = {0, 0, 1, 1, 2, 3, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t t = 0; t < 32; ++t) CHECK(odd[t] == truncated[input[t * 4] >> 4]);
}

TEST_CASE("convert works on whole register arrays", "[cpu][memory]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(128)});
  const ArrayRef y = k.tensor("y", DType::e4m3, {integer(128)});
  const ArrayRef wide = k.registers("wide", DType::f32, 4);
  const ArrayRef narrow = k.registers("narrow", DType::e4m3, 4);
  k.load_vector(x, {k.thread() * integer(4)}, 4, wide);
  k.convert(narrow, wide, 4);
  k.store_vector(y, {k.thread() * integer(4)}, 4, narrow);
  std::vector<float> input(128, 1.0f);
  input[1] = 1000.0f;
  input[2] = -0.5f;
  std::vector<uint8_t> output(128);
  k.run({argument(input, DType::f32), argument(output, DType::e4m3)}, with_traps());
  CHECK(output[0] == 0x38);
  CHECK(output[1] == 0x7E);
  CHECK(output[2] == 0xB0);
  CHECK(output[127] == 0x38);
}

TEST_CASE("a register array may be indexed by a value that differs between threads",
          "[cpu][memory]") {
  const bool traps = GENERATE(false, true);
  ThreadKernel k(64);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(64)});
  const ArrayRef slots = k.registers("slots", DType::i32, 4, true);
  k.store(slots, {k.thread() % integer(4)}, k.thread());
  const Expr same = k.load(slots, {k.thread() % integer(4)});
  const Expr next = k.load(slots, {(k.thread() + integer(1)) % integer(4)});
  k.store(out, {k.thread()}, same * integer(100) + next);
  std::vector<int32_t> output(64);
  Options options;
  options.traps = traps;
  k.run({argument(output, DType::i32)}, options);
  for (int t = 0; t < 64; ++t) CHECK(output[static_cast<size_t>(t)] == t * 100);
}

TEST_CASE("a slice that differs between threads is refused", "[cpu][memory]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(128)});
  const ArrayRef slots = k.registers("slots", DType::f32, 64);
  k.load_vector(x, {k.thread() * integer(4)}, 4, slots, k.thread());
  try {
    const Executable executable(k.program());
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
    CHECK(error.fields().what == "a slice of 'slots' differs between threads");
    CHECK(error.got() == "thread");
  }
}

TEST_CASE("moved data keeps its bits", "[cpu][memory]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(32)});
  const ArrayRef y = k.tensor("y", DType::f32, {integer(32)});
  const ArrayRef slot = k.registers("slot", DType::f32, 1);
  k.store(slot, {integer(0)}, k.load(x, {k.thread()}));
  const Expr v = k.collective(ir::CollectiveKind::shuffle_xor, DType::f32,
                              {k.load(slot, {integer(0)}), integer(1)});
  k.store(y, {k.thread()}, v);
  std::vector<uint32_t> input(32, 0xFFA00001u), output(32);  // a signalling NaN
  k.run({argument(input, DType::f32), argument(output, DType::f32)});
  CHECK(output == input);
}

}  // namespace tessera::codegen::cpu
