// Where shared buffers lie in the arena of their block.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kKib = 1024;

/// Writes `buffer` and gives each element to another thread.
void exchange(Builder& k, const Ref& buffer, const Ref& to, int64_t size) {
  k.parallel({size}, [&](Value i) { buffer(i) = cast(buffer.dtype(), i % 100); });
  k.parallel({size}, [&](Value i) { to(i) = cast(DType::i32, buffer(size - 1 - i)); });
}

}  // namespace

TEST_CASE("buffers that are not in use together share memory, with a barrier between (S10)",
          "[language]") {
  Builder k("generations");
  constexpr int64_t size = 4 * kKib;
  auto y = k.output("y", DType::i32, {3, size});
  k.launch({1}, {.threads = 128});
  auto wide = k.shared(DType::f32, {size}, "wide");
  auto narrow = k.shared(DType::u8, {size}, "narrow");
  auto again = k.shared(DType::i32, {size}, "again");
  exchange(k, wide, y(0), size);
  exchange(k, narrow, y(1), size);
  exchange(k, again, y(2), size);
  const ir::Kernel kernel = k.finish();
  HostTensor result(DType::i32, {3, size});
  run_kernel(kernel, {&result});  // traps on a race between generations
  CHECK_THAT(result, HasValues([](int64_t i) { return (size - 1 - i % size) % 100; }));
  CHECK(codegen::lower(kernel).shared_bytes == 16 * kKib);  // of 36
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 5);
}

TEST_CASE("buffers keep to themselves where that costs no blocks (S10)", "[language]") {
  Builder k("small");
  auto y = k.output("y", DType::i32, {2, 512});
  k.launch({1}, {.threads = 128});
  auto a = k.shared(DType::i32, {512}, "a");
  auto b = k.shared(DType::i32, {512}, "b");
  exchange(k, a, y(0), 512);
  exchange(k, b, y(1), 512);
  const ir::Kernel kernel = k.finish();
  const HostTensor result(DType::i32, {2, 512});
  run_kernel(kernel, {&result});
  CHECK(codegen::lower(kernel).shared_bytes == 4 * kKib);
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 2);  // one in each, none between
}

TEST_CASE("what a loop carries around shares no memory with what it uses (S11)", "[language]") {
  Builder k("carried");
  constexpr int64_t size = 4 * kKib;
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n, size});
  k.launch({1}, {.threads = 128});
  auto carried = k.shared(DType::i32, {size}, "carried");
  auto scratch = k.shared(DType::i32, {size}, "scratch");
  k.fill(carried, 1);
  k.serial(0, n, [&](Value i) {
    // `carried` is last read before `scratch` is first written, and read again in the next round.
    k.parallel({size}, [&](Value e) { y(i, e) = carried(size - 1 - e); });
    k.parallel({size}, [&](Value e) { scratch(e) = carried(e) + e; });
    k.parallel({size}, [&](Value e) { carried(e) = scratch(size - 1 - e); });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor result(DType::i32, {3, size});
  run_kernel(kernel, {&result});
  CHECK(result.value(0) == 1);
  CHECK(result.value(size) == 1);  // carried[e] = 1 + (size - 1 - e), read in reverse
  CHECK(result.value(2 * size) == 1 + (size - 1));
  CHECK(codegen::lower(kernel).shared_bytes == 32 * kKib);
}

TEST_CASE("what asynchronous copies write, and manual-sync regions use, shares no memory",
          "[language]") {
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  Builder k("kept_apart");
  constexpr int64_t size = 4 * kKib;
  auto x = k.input("x", DType::i32, {size});
  auto y = k.output("y", DType::i32, {2, size});
  k.launch({1}, {.threads = 128});
  auto a = k.shared(DType::i32, {size}, "a");
  auto b = k.shared(DType::i32, {size}, "b");
  if (async) {
    k.wait(k.copy_async(x, a));
    k.copy(a, y(0));
  } else {
    k.manual_sync([&] {
      k.copy(x, a);
      k.sync();
      k.copy(a, y(0));
    });
  }
  exchange(k, b, y(1), size);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {size});
  const HostTensor result(DType::i32, {2, size});
  run_kernel(kernel, {&source, &result});
  CHECK(result.value(5) == 5);
  CHECK(codegen::lower(kernel).shared_bytes == 32 * kKib);
}

// Found by the address sanitizer: the banks of elements before the array were counted, in front of
// the counters.
TEST_CASE("lanes that a guard turns off count no banks in front of the array", "[language]") {
  Builder k("shifted");
  constexpr int64_t rows = 4, columns = 64;
  auto y = k.output("y", DType::i32, {rows, columns});
  k.launch({1}, {.threads = 128});
  auto tile = k.shared(DType::i32, {rows, columns}, "tile");
  k.parallel({rows, columns}, [&](Value r, Value c) { tile(r, c) = r * 100 + c; });
  k.parallel({rows, columns}, [&](Value r, Value c) {
    y(r, c) = -1;
    k.if_(r > 0, [&] { y(r, c) = tile(r - 1, columns - 1 - c); });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor result(DType::i32, {rows, columns});
  run_kernel(kernel, {&result});
  CHECK_THAT(result, HasValues([](int64_t i) {
               const int64_t r = i / columns, c = i % columns;
               return r == 0 ? -1 : (r - 1) * 100 + columns - 1 - c;
             }));
}
