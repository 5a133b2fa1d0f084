// Counts on patterns small enough to count by hand.

#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

/// Counts of reading x[thread * stride], `width` elements, by 64 threads.
Counts count_loads(DType type, int64_t stride, int width) {
  ThreadKernel k(64);
  const ArrayRef x = k.tensor("x", type, {integer(1 << 16)}, true);
  const ArrayRef slots = k.registers("slots", type, width);
  k.load_vector(x, {k.thread() * integer(stride)}, width, slots);
  std::vector<uint64_t> memory(1 << 16);
  Argument argument;
  argument.tensor = TensorView(memory.data(), type, Dims{1 << 16});
  return k.count({argument});
}

Counts count_shared_loads(DType type, int64_t stride, int width, int threads = 32) {
  ThreadKernel k(threads);
  const ArrayRef tile = k.shared("tile", type, {8192});
  const ArrayRef slots = k.registers("slots", type, width);
  k.load_vector(tile, {k.thread() * integer(stride)}, width, slots);
  return k.count({});
}

}  // namespace

TEST_CASE("global requests count warps, sectors and bytes", "[cpu][counts]") {
  const Counts dense = count_loads(DType::f32, 1, 1);
  CHECK(dense.global_load_requests == 2);
  CHECK(dense.global_load_sectors == 8);
  CHECK(dense.global_load_bytes == 256);
  CHECK(dense.global_store_requests == 0);

  const Counts scattered = count_loads(DType::f32, 8, 1);
  CHECK(scattered.global_load_sectors == 64);
  CHECK(scattered.global_load_bytes == 256);

  const Counts same = count_loads(DType::f32, 0, 1);
  CHECK(same.global_load_sectors == 2);

  const Counts vectors = count_loads(DType::bf16, 8, 8);
  CHECK(vectors.global_load_requests == 2);
  CHECK(vectors.global_load_sectors == 32);
  CHECK(vectors.global_load_bytes == 1024);

  const Counts half = count_loads(DType::f32, 2, 1);  // every other element
  CHECK(half.global_load_sectors == 16);
}

TEST_CASE("the least sectors hold the distinct bytes of a warp", "[cpu][counts]") {
  // Stride, width and the least for two warps: touched sectors may be more, asked bytes too.
  CHECK(count_loads(DType::f32, 1, 1).global_load_least_sectors == 8);
  CHECK(count_loads(DType::f32, 8, 1).global_load_least_sectors == 8);
  CHECK(count_loads(DType::f32, 0, 1).global_load_least_sectors == 2);
  CHECK(count_loads(DType::bf16, 8, 8).global_load_least_sectors == 32);
  CHECK(count_loads(DType::f32, 8, 4).global_load_sectors == 64);
  CHECK(count_loads(DType::f32, 8, 4).global_load_least_sectors == 32);
  CHECK(count_loads(DType::e2m1, 8, 8).global_load_least_sectors == 8);
}

TEST_CASE("guards and masks leave only active threads to count", "[cpu][counts]") {
  ThreadKernel k(128);
  const ArrayRef x = k.tensor("x", DType::f32, {integer(128)});
  k.store(x, {k.thread()}, number(1), less(k.thread(), integer(40)));
  k.branch(less(k.thread(), integer(8)), [&] { k.load(x, {integer(7) - k.thread()}); });
  std::vector<float> data(128);
  const Counts counts = k.count({argument(data, DType::f32)});
  CHECK(counts.guards == 4);
  CHECK(counts.global_store_requests == 2);
  CHECK(counts.global_store_sectors == 5);
  CHECK(counts.global_store_bytes == 160);
  CHECK(counts.global_load_requests == 1);
  CHECK(counts.global_load_sectors == 1);
  CHECK(counts.global_load_bytes == 32);
}

TEST_CASE("packed 4-bit elements count half a byte", "[cpu][counts]") {
  ThreadKernel k(32);
  const ArrayRef x = k.tensor("x", DType::e2m1, {integer(512)}, true);
  const ArrayRef slots = k.registers("slots", DType::e2m1, 8);
  k.load_vector(x, {k.thread() * integer(8)}, 8, slots);
  std::vector<uint8_t> data(256);
  const Counts counts = k.count({argument(data, DType::i8)});
  CHECK(counts.global_load_bytes == 128);
  CHECK(counts.global_load_sectors == 4);
}

TEST_CASE("shared accesses count bank conflicts", "[cpu][counts]") {
  struct Case {
    DType type;
    int64_t stride;
    int width;
    int64_t wavefronts, ideal;
  };
  for (const Case& c : {
           Case{DType::f32, 1, 1, 1, 1},
           Case{DType::f32, 0, 1, 1, 1},    // all lanes read one word
           Case{DType::f32, 2, 1, 2, 1},    // two words per even bank
           Case{DType::f32, 32, 1, 32, 1},  // a column of a row-major tile
           Case{DType::f32, 33, 1, 1, 1},   // the same, padded
           Case{DType::bf16, 1, 1, 1, 1},   // two lanes share a word
           Case{DType::bf16, 64, 1, 32, 1},
           Case{DType::f32, 2, 2, 2, 2},    // 8 bytes: two half-warps
           Case{DType::f32, 32, 2, 32, 2},  // 16 lanes on the same two banks, twice
           Case{DType::f32, 4, 4, 4, 4},    // 16 bytes: four quarters
           Case{DType::f32, 8, 4, 8, 4},
           Case{DType::bf16, 8, 8, 4, 4},
       }) {
    CAPTURE(name(c.type), c.stride, c.width);
    const Counts counts = count_shared_loads(c.type, c.stride, c.width);
    CHECK(counts.shared_requests == 1);
    CHECK(counts.shared_wavefronts == c.wavefronts);
    CHECK(counts.shared_ideal_wavefronts == c.ideal);
  }
  CHECK(count_shared_loads(DType::f32, 1, 1, 96).shared_requests == 3);
}

TEST_CASE("barriers count blocks, warp barriers and shuffles count warps", "[cpu][counts]") {
  ThreadKernel k(128, {integer(5)});
  k.loop(integer(0), integer(3), integer(1), [&](const Expr&) {
    k.barrier();
    k.warp_barrier();
  });
  k.branch(less(k.thread(), integer(64)), [&] {
    k.collective(ir::CollectiveKind::shuffle_xor, DType::i32, {k.thread(), integer(1)});
  });
  const Counts counts = k.count({});
  CHECK(counts.barriers == 15);
  CHECK(counts.warp_barriers == 60);
  CHECK(counts.shuffles == 10);
}

TEST_CASE("each access is counted at its line", "[cpu][counts]") {
  ThreadKernel k(64, {integer(7)});
  const ArrayRef x = k.tensor("x", DType::f32, {integer(4096)}, true);
  const ArrayRef y = k.tensor("y", DType::f32, {integer(7), integer(64)});
  const ArrayRef tile = k.shared("tile", DType::f32, {4096});
  const SourceLoc first{"a.cpp", 10}, second{"a.cpp", 20};
  const Expr a = k.load(x, {k.thread() * integer(8)}, {}, first);
  const Expr b = k.load(x, {k.thread() * integer(16)}, {}, first);  // looks the same: one with a
  k.store(tile, {k.thread() * integer(2)}, a + b, {}, second);
  k.store(y, {k.block(0), k.thread()}, a, {}, second);
  std::vector<float> read(4096), written(7 * 64);
  const Argument arguments[] = {argument(read, DType::f32), argument(written, DType::f32)};
  const Executable executable(k.program());
  const int workers = GENERATE(1, 3);
  Counts counts;
  std::vector<AccessCounts> accesses(1);
  Options options;
  options.workers = workers;
  options.counts = &counts;
  options.accesses = &accesses;
  executable.run(arguments, options);
  REQUIRE(accesses.size() == 3);
  CHECK(to_string(accesses[0].loc) == "a.cpp:10");
  CHECK(accesses[0].array == "x");
  CHECK(accesses[0].is_load);
  CHECK(accesses[0].counts.global_load_requests == 2 * 2 * 7);
  CHECK(accesses[0].counts.global_load_sectors == counts.global_load_sectors);
  CHECK(accesses[0].counts.global_store_sectors == 0);
  CHECK(accesses[1].array == "tile");
  CHECK_FALSE(accesses[1].is_load);
  CHECK(accesses[1].counts.shared_wavefronts == 2 * 2 * 7);
  CHECK(accesses[1].counts.shared_ideal_wavefronts == 2 * 7);
  CHECK(to_string(accesses[2].loc) == "a.cpp:20");
  CHECK(accesses[2].counts.global_store_sectors == counts.global_store_sectors);

  // Without the sums, too.
  options.counts = nullptr;
  executable.run(arguments, options);
  CHECK(accesses.size() == 3);
}

TEST_CASE("registers are live from the first to the last statement that names them",
          "[cpu][counts]") {
  const auto live = [](const std::function<void(ThreadKernel&, const ArrayRef&)>& write) {
    ThreadKernel k(32);
    const ArrayRef x = k.tensor("x", DType::f32, {integer(4096)});
    write(k, x);
    std::vector<float> data(4096);
    return k.count({argument(data, DType::f32)}).live_registers;
  };
  CHECK(live([](ThreadKernel& k, const ArrayRef& x) { k.store(x, {k.thread()}, number(1)); }) == 0);
  // b takes the place of a.
  CHECK(live([](ThreadKernel& k, const ArrayRef& x) {
          const Expr a = k.load(x, {k.thread()});
          const Expr b = k.let(a + a);
          k.store(x, {k.thread()}, b);
        }) == 1);
  CHECK(live([](ThreadKernel& k, const ArrayRef& x) {
          const Expr a = k.load(x, {k.thread()});
          const Expr b = k.let(a + a);
          k.store(x, {k.thread()}, a + b);
        }) == 2);
  // Two arrays, one after the other, and together.
  const auto arrays = [](bool together) {
    return [together](ThreadKernel& k, const ArrayRef& x) {
      const ArrayRef a = k.registers("a", DType::f32, 4), b = k.registers("b", DType::f32, 4);
      k.load_vector(x, {k.thread() * integer(4)}, 4, a);
      if (!together) k.store_vector(x, {k.thread() * integer(4)}, 4, a);
      k.load_vector(x, {k.thread() * integer(4)}, 4, b);
      k.store_vector(x, {k.thread() * integer(4)}, 4, b);
      if (together) k.store_vector(x, {k.thread() * integer(4)}, 4, a);
    };
  };
  CHECK(live(arrays(false)) == 4);
  CHECK(live(arrays(true)) == 8);
  // A value that a loop needs in every round stays until its end: a, the loop's index, and b or c.
  CHECK(live([](ThreadKernel& k, const ArrayRef& x) {
          const Expr a = k.load(x, {k.thread()});
          k.loop(integer(0), integer(3), integer(1), [&](const Expr& i) {
            const Expr b = k.let(a + number(1));
            k.store(x, {k.thread() + i}, b);
            const Expr c = k.load(x, {k.thread()});
            k.store(x, {k.thread()}, c);
          });
        }) == 3);
  // Two 16-bit elements share a register; 64-bit values take two.
  CHECK(live([](ThreadKernel& k, const ArrayRef&) {
          const ArrayRef h = k.registers("h", DType::bf16, 8);
          const ArrayRef y = k.shared("y", DType::bf16, {256});
          k.store_vector(y, {k.thread() * integer(8)}, 8, h);
        }) == 4);
  CHECK(live([](ThreadKernel& k, const ArrayRef& x) {
          const Expr wide = k.let(ir::cast(DType::i64, k.thread()));
          k.store(x, {wide}, number(1));
        }) == 2);
}

}  // namespace tessera::codegen::cpu
