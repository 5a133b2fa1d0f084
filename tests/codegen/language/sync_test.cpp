// Tile programs about barriers: how few, of what kind, and where there must be none; and about leaving early.
//
// S14, a barrier of the whole grid, has no test: the language has no grid barrier. It needs a cooperative launch with a
// workspace in the driver's hands, and an executor that suspends blocks; no shipped op waits for its whole grid.

#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Arg;
using dsl::Builder;
using dsl::Value;

TEST_CASE("S04 a ping-pong buffer needs one barrier per round", "[language]") {
  const bool dynamic = GENERATE(false, true);
  CAPTURE(dynamic);
  Builder k("ping_pong");
  auto rounds = k.dim("rounds");
  auto x = k.input("x", DType::i32, {rounds, 64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto buffer = k.shared(DType::i32, {2, 64}, "buffer");
  auto sum = k.fragment(DType::i32, {64}, "sum");
  k.fill(sum, 0);
  k.serial(0, dynamic ? Arg(rounds) : Arg(5), [&](Value i) {
    k.parallel({64}, [&](Value r) { buffer(i % 2, r) = x(i, r); });
    k.parallel({64}, [&](Value r) { sum(r) += buffer(i % 2, 63 - r); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {5, 64});
  HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&source, &result});
  for (int64_t r = 0; r < 64; ++r) {
    double want = 0;
    for (int64_t i = 0; i < 5; ++i) want += source.value(i * 64 + 63 - r);
    CHECK(result.value(r) == want);
  }
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 1);
}

TEST_CASE("S05 a conflict among the first 48 threads is rejected", "[language]") {
  Builder k("first_threads");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  k.if_(k.thread() < 48, [&] {
    s(k.thread()) = k.thread();
    y(k.thread()) = s(47 - k.thread());
  });
  const ir::Kernel kernel = k.finish();
  CHECK(error_of([&] { codegen::lower(kernel); }).find("SYNC_DIVERGENT") != std::string::npos);
}

TEST_CASE("S08 neighbours of one warp exchange through shared memory with a warp barrier",
          "[language]") {
  Builder k("neighbours");
  auto x = k.input("x", DType::i32, {128});
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 128});
  auto s = k.shared(DType::i32, {128}, "s");
  s(k.thread()) = x(k.thread());
  y(k.thread()) = s(k.thread() ^ 1);
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {128});
  HostTensor result(DType::i32, {128});
  run_kernel(kernel, {&source, &result});
  for (int64_t i = 0; i < 128; ++i) CHECK(result.value(i) == static_cast<double>(i ^ 1));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "__syncwarp();") == 1);
  CHECK(count(text, "__syncthreads();") == 0);
}

TEST_CASE("S09 a fill and a copy over part of it are ordered", "[language]") {
  Builder k("overwrite");
  auto x = k.input("x", DType::i32, {128});
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {256}, "s");
  k.fill(s, 7);
  k.copy(x, s.tile({32}, {128}));
  k.parallel({256}, [&](Value i) { y(i) = s(255 - i); });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {128});
  HostTensor result(DType::i32, {256});
  run_kernel(kernel, {&source, &result});
  for (int64_t i = 0; i < 256; ++i) {
    const int64_t from = 255 - i;
    CHECK(result.value(i) == (from >= 32 && from < 160 ? source.value(from - 32) : 7));
  }
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 2);
}

TEST_CASE("S12 leaving before a barrier is rejected unless the whole block leaves", "[language]") {
  const auto program = [](bool whole_block) {
    Builder k("leave_early");
    auto n = k.dim("n");
    auto y = k.output("y", DType::i32, {n, 64});
    auto at = k.launch({4}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    if (whole_block) {
      k.return_if(at.x >= n);
    } else {
      k.return_if(k.thread() + at.x * 64 >= n * 64);
    }
    k.parallel({64}, [&](Value i) { s(i) = i; });
    k.parallel({64}, [&](Value i) { y(at.x, i) = s(63 - i); });
    return k.finish();
  };
  HostTensor result(DType::i32, {3, 64});
  const ir::Kernel kernel = program(true);
  run_kernel(kernel, {&result});
  for (int64_t i = 0; i < 192; ++i) CHECK(result.value(i) == static_cast<double>(63 - i % 64));
  CHECK(count(cuda_text(kernel), "< n") == 0);
  const std::string error = error_of([&] { codegen::lower(program(false)); });
  CHECK(error.find("RETURN_BEFORE_BARRIER") != std::string::npos);
  CHECK(error.find("the same for the whole block") != std::string::npos);
}

TEST_CASE("threads may leave where nobody waits for them", "[language]") {
  Builder k("leave");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto at = k.launch({ceil_div(n, 64)}, {.threads = 64});
  auto i = k.let("i", at.x * 64 + k.thread());
  k.return_if(i >= n);
  y(i) = i;
  const ir::Kernel kernel = k.finish();
  HostTensor result(DType::i32, {100});
  run_kernel(kernel, {&result});
  for (int64_t e = 0; e < 100; ++e) CHECK(result.value(e) == static_cast<double>(e));
}

TEST_CASE("a manual-sync region holds the author's barriers only", "[language]") {
  const auto program = [](bool sync) {
    Builder k("by_hand");
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    k.manual_sync([&] {
      k.parallel({64}, [&](Value i) { s(i) = i; });
      if (sync) k.sync();
      k.parallel({64}, [&](Value i) { y(i) = s(63 - i); });
    });
    return k.finish();
  };
  HostTensor result(DType::i32, {64});
  run_kernel(program(true), {&result});
  CHECK(result.value(0) == 63);
  CHECK(count(cuda_text(program(true)), "__syncthreads();") == 1);
  CHECK(count(cuda_text(program(false)), "__syncthreads();") == 0);
  CHECK(error_of([&] { run_kernel(program(false), {&result}); }).find("RACE") != std::string::npos);
}

TEST_CASE("fewer elements than threads are changed in place by one copy of each iteration",
          "[language]") {
  const int64_t rows = GENERATE(1, 3, 8);
  CAPTURE(rows);
  Builder k("in_place");
  auto y = k.output("y", DType::i32, {rows, 4});
  k.launch({1}, {.threads = 96});
  auto s = k.shared(DType::i32, {rows, 4}, "s");
  k.parallel({rows, 4}, [&](Value i, Value j) { s(i, j) = i * 4 + j; });
  k.serial(0, 3, [&](Value step) {
    k.parallel({rows, 4}, [&](Value i, Value j) {
      k.if_(s(i, j) % 2 == 0, [&] { s(i, j) = s(i, j) + step; });
    });
  });
  k.copy(s, y);
  HostTensor result(DType::i32, {rows, 4});
  run_kernel(k.finish(), {&result});
  for (int64_t e = 0; e < result.size(); ++e) {
    int64_t want = e;
    for (int64_t step = 0; step < 3; ++step) want += want % 2 == 0 ? step : 0;
    CHECK(result.value(e) == static_cast<double>(want));
  }
}
