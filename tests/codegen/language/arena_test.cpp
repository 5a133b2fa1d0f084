// Where shared buffers lie in the arena of their block.

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/target_facts.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
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

TEST_CASE(
    "what copies write shares memory once they are awaited, what manual-sync regions use does not",
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
    k.parallel({size}, [&](Value i) { y(0, i) = a(size - 1 - i); });
  } else {
    k.manual_sync([&] {
      k.copy(x, a);
      k.sync();
      k.parallel({size}, [&](Value i) { y(0, i) = a(size - 1 - i); });
    });
  }
  exchange(k, b, y(1), size);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {size});
  const HostTensor result(DType::i32, {2, size});
  run_kernel(kernel, {&source, &result});
  CHECK(result.value(5) == size - 6);
  CHECK(codegen::lower(kernel).shared_bytes == (async ? 16 : 32) * kKib);
}

namespace {

enum class Copied : uint8_t { in_pieces, in_bulk, as_boxes };

/// A buffer of `size` elements, two pipelined loops over tiles of their own, and a buffer as the first.
ir::Kernel two_loops(int64_t rows, int64_t size, Copied how) {
  Builder k("two_loops");
  constexpr int64_t cols = 256;
  auto n = k.dim("n");
  auto x = k.input("x", DType::i32, {n, rows, cols});
  auto y = k.output("y", DType::i32, {2, rows, cols});
  auto z = k.output("z", DType::i32, {2, size});
  k.launch({1}, {.threads = 256});
  exchange(k, k.shared(DType::i32, {size}, "initial"), z(0), size);
  for (int64_t pass = 0; pass < 2; ++pass) {
    auto tile = k.shared(DType::i32, {rows, cols}, pass == 0 ? "first" : "second");
    auto sum = k.fragment(DType::i32, {rows, cols}, "sum");
    k.fill(sum, 0);
    k.pipelined(0, n, 2, [&](Value i) {
      const auto engine = how == Copied::as_boxes ? ir::Engine::tensor : ir::Engine::automatic;
      k.copy(how == Copied::in_bulk ? x(i).bulk() : x(i), tile, {.engine = engine});
      k.parallel({rows, cols}, [&](Value r, Value c) { sum(r, c) += tile(r, cols - 1 - c); });
    });
    k.copy(sum, y(pass));
  }
  exchange(k, k.shared(DType::i32, {size}, "final"), z(1), size);
  return k.finish();
}

}  // namespace

TEST_CASE("the tiles of a pipelined loop make place for what comes after it", "[language]") {
  const Copied how = GENERATE(Copied::in_pieces, Copied::in_bulk, Copied::as_boxes);
  CAPTURE(static_cast<int>(how));
  constexpr int64_t rows = 80, size = 32 * kKib;  // 128 + 160 + 160 + 128 KiB
  const ir::Kernel kernel = two_loops(rows, size, how);
  const HostTensor x = iota(DType::i32, {3, rows, 256});
  const HostTensor y(DType::i32, {2, rows, 256}), z(DType::i32, {2, size});
  run_kernel(kernel, {&x, &y, &z});
  CHECK_THAT(y, HasValues([](int64_t i) {
               const int64_t e = i % (rows * 256);
               return 3.0 * static_cast<double>(e - e % 256 + 255 - e % 256) + 3 * rows * 256;
             }));
  CHECK_THAT(z, HasValues([](int64_t i) { return (size - 1 - i % size) % 100; }));
  CHECK(codegen::lower(kernel).shared_bytes / kKib == 160);
  const std::string why = codegen::explain(kernel);
  CAPTURE(why);
  CHECK(why.find("shared 'second' at byte 0, after 'initial', 'first'") != std::string::npos);
  CHECK(why.find("shared 'final' at byte 0, after 'initial', 'first', 'second'") !=
        std::string::npos);
  CHECK(count(why, "all copies are awaited behind it") == 2);
}

TEST_CASE("loops whose tiles make place compile for every target", "[language][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const Copied how : {Copied::in_pieces, Copied::in_bulk, Copied::as_boxes}) {
      if (how == Copied::as_boxes && parse_target(target)->major < 9) continue;
      // 160 KiB, or 80 where a block may have 99.
      const Target of = parse_target(target).value();
      const int64_t half = facts_of(of).shared_memory < 160 * kKib ? 1 : 2;
      const ir::Kernel kernel = two_loops(40 * half, 16 * half * kKib, how);
      const std::string text = codegen::cuda::emit(codegen::lower(kernel, of)).text;
      const Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(target, static_cast<int>(how), compiled.log);
      CHECK(compiled.ok);
    }
  }
}

TEST_CASE("the tiles of a pipelined loop stay where no more blocks would run", "[language]") {
  const ir::Kernel kernel = two_loops(16, 30 * kKib, Copied::in_pieces);  // 32 + 32 + 120 KiB
  CHECK(codegen::lower(kernel).shared_bytes / kKib == 184);
  CHECK(codegen::explain(kernel).find("all copies are awaited") == std::string::npos);
  const ir::Kernel small =
      two_loops(16, 24 * kKib, Copied::in_pieces);  // 32 + 32 + 96 KiB, or two blocks of 96
  CHECK(codegen::lower(small).shared_bytes / kKib == 96);
}

TEST_CASE("UNINITIALISED: what another buffer left in the same memory", "[language][traps]") {
  const bool copied = GENERATE(false, true);
  CAPTURE(copied);
  Builder k("leftovers");
  constexpr int64_t size = 16 * kKib;
  auto n = k.dim("n");
  auto x = k.input("x", DType::i32, {n, size});
  auto y = k.output("y", DType::i32, {2, size});
  k.launch({1}, {.threads = 256});
  auto old = k.shared(DType::i32, {size}, "old");
  auto fresh = k.shared(DType::i32, {size}, "fresh");
  if (copied) {
    k.pipelined(0, n, {.stages = 1, .in_place = true}, [&](Value i) {
      k.copy(x(i), old);
      k.copy(old, y(0));
    });
  } else {
    exchange(k, old, y(0), size);
  }
  k.parallel({size - 1}, [&](Value i) { fresh(i) = i; });
  k.parallel({size}, [&](Value i) { y(1, i) = fresh(size - 1 - i); });
  const ir::Kernel kernel = k.finish();
  CHECK(codegen::lower(kernel).shared_bytes / kKib == 64);
  const HostTensor source = iota(DType::i32, {2, size});
  const HostTensor result(DType::i32, {2, size});
  const std::string text = error_of([&] {
    run_on_executor(kernel, {source.view(), result.view()});
  });
  CHECK(text.find("[UNINITIALISED]") != std::string::npos);
  CHECK(text.find("fresh[16383] is read before it is written") != std::string::npos);
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
