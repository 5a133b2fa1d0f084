// Barriers around and inside loops: how many, and that none is missing.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("a barrier in a loop that never runs does not order what stands around the loop",
          "[language][barriers]") {
  Builder k("zero_rounds");
  auto n = k.dim("n");
  auto rounds = k.output("rounds", DType::i32, {n});
  auto y = k.output("y", DType::i32, {2, 64});
  k.launch({1}, {.threads = 64});
  const Value t = k.thread();
  auto s = k.shared(DType::i32, {64}, "s");
  auto q = k.shared(DType::i32, {64}, "q");
  s(t) = t;
  y(0, t) = s(63 - t);
  k.serial(1, n, [&](Value i) {
    q(t) = t + i;
    k.if_(t == 0, [&] { rounds(i) = q(63); });
  });
  s(t) = t + 100;  // other threads may still read s above
  y(1, t) = s(t);
  const ir::Kernel kernel = k.finish();
  for (const int64_t extent : {1, 2, 4}) {
    const HostTensor rounds_out(DType::i32, {extent});
    const HostTensor out(DType::i32, {2, 64});
    run_kernel(kernel, {&rounds_out, &out});
    CHECK(out.value(0) == 63);
    CHECK(out.value(64) == 100);
    if (extent > 1) CHECK(rounds_out.value(1) == 64);
  }
}

TEST_CASE("a loop that begins with a barrier needs none in front", "[language][barriers]") {
  Builder k("loop_of_gemms");
  auto n = k.dim("n");
  auto x = k.input("x", DType::i32, {n, 64});
  auto y = k.output("y", DType::i32, {n, 64});
  k.launch({1}, {.threads = 64});
  const Value t = k.thread();
  auto s = k.shared(DType::i32, {64}, "s");
  s(t) = x(0, t);
  y(0, t) = s(63 - t);
  k.serial(0, n, [&](Value i) {
    s(t) = x(i, t);  // others may still read s, above or in the round before
    y(i, t) = s(63 - t);
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {3, 64});
  const HostTensor out(DType::i32, {3, 64});
  run_kernel(kernel, {&source, &out});
  CHECK(out.value(64) == source.value(127));
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 3);
}

TEST_CASE("a ring of buffers is ordered from wherever its loop starts", "[language][barriers]") {
  // Each round writes one buffer and reads the one that was written `distance` rounds before. One
  // barrier in each round is enough; in front of the write (distance 2) it also orders the fill.
  const int distance = GENERATE(0, 1, 2);
  const int grid = GENERATE(1, 2);
  CAPTURE(distance, grid);
  Builder k("ring");
  auto n = k.dim("n");
  auto x = k.input("x", DType::i32, {n, 64});
  auto y = k.output("y", DType::i32, {n, 64});
  auto at = k.launch({grid}, {.threads = 64});
  const Value t = k.thread();
  auto ring = k.shared(DType::i32, {3, 64}, "ring");
  k.fill(ring, -1);
  k.serial(at.x, n, [&](Value i) {
    ring(i % 3, t) = x(i, t);
    y(i, t) = ring((i + (3 - distance)) % 3, 63 - t);
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {7, 64});
  const HostTensor out(DType::i32, {7, 64});
  if (grid == 1) {  // with two blocks, both write the same rows
    run_kernel(kernel, {&source, &out});
    for (int64_t i = distance; i < 7; ++i) {
      CHECK(out.value(i * 64) == source.value((i - distance) * 64 + 63));
    }
  }
  CHECK(count(cuda_text(kernel), "__syncthreads();") == (distance == 2 ? 1 : 2));
}

TEST_CASE("threads that begin a loop at different indices are in different phases",
          "[language][barriers]") {
  // While one thread writes row 0, another one reads it as the row before its own.
  Builder k("thread_phases");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  k.launch({1}, {.threads = 64});
  const Value t = k.thread();
  auto s = k.shared(DType::i32, {2, 64}, "s");
  k.serial(
      t, n,
      [&](Value i) {
        s(i % 2, t) = i;
        y(i) = s((i + 1) % 2, 63 - t);
      },
      64);
  const ir::Kernel kernel = k.finish();
  CHECK(error_of([&] { codegen::lower(kernel); }).find("SYNC_DIVERGENT") != std::string::npos);
}

TEST_CASE("an index that wraps may touch everything", "[language][barriers]") {
  Builder k("wrapped_index");
  auto y = k.output("y", DType::u32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::u32, {100}, "s");
  k.fill(s, 0);
  const Value t = cast(DType::u32, k.thread());
  const Value place = k.let("place", t * 2654435761U % 100U);
  k.atomic_add(s(place), 1U);
  y(k.thread()) = s(place);
  const ir::Kernel kernel = k.finish();
  const HostTensor out(DType::u32, {64});
  run_kernel(kernel, {&out});
  uint32_t hits[100] = {};
  for (uint32_t i = 0; i < 64; ++i) ++hits[i * 2654435761U % 100U];
  for (uint32_t i = 0; i < 64; ++i) CHECK(out.value(i) == hits[i * 2654435761U % 100U]);
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 2);
}

TEST_CASE("a warp may exchange under a condition of its own", "[language][barriers]") {
  Builder k("one_warp");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 128});
  auto s = k.shared(DType::i32, {128}, "s");
  const Value t = k.thread();
  k.if_(t < 64, [&] {
    s(t) = t;
    k.serial(k.warp(), 4, [&](Value i) {
      y(t) = s(t ^ 1) + i;
      s(t) = t + i;
    });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor out(DType::i32, {64});
  run_kernel(kernel, {&out});
  CHECK(out.value(1) == 0 + 2 + 3);  // the last round reads what the one before has left
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "__syncwarp();") == 2);
  CHECK(count(text, "__syncthreads();") == 0);
}
