// Lowering takes time in proportion to the statements, and a stack that does not depend on them.

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"

using namespace tessera;
using dsl::Builder;
using dsl::Value;

namespace {

ir::Kernel loops_on_one_fragment(int count) {
  Builder k("loops");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  auto at = k.launch({ceil_div(rows, 16)}, {.threads = 128});
  auto tile = k.fragment(DType::f32, {16, 64}, "tile");
  k.copy(x.tile({at.x * 16, 0}, {16, 64}), tile);
  for (int i = 0; i < count; ++i) {
    k.parallel({16, 64}, [&](Value r, Value c) { tile(r, c) = tile(r, c) * 2.0f; });
  }
  k.copy(tile, y.tile({at.x * 16, 0}, {16, 64}));
  return k.finish();
}

ir::Kernel copies_of_rows(int count, bool in_background) {
  Builder k("copies");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 128});
  auto y = k.output("y", DType::f32, {rows, 128});
  auto at = k.launch({ceil_div(rows, count)}, {.threads = 128});
  auto tile = k.shared(DType::f32, {count, 128}, "tile");
  for (int i = 0; i < count; ++i) {
    auto from = x.tile({at.x * count + i, 0}, {1, 128});
    auto to = tile.tile({i, 0}, {1, 128});
    if (in_background) {
      k.copy_async(from, to);
    } else {
      k.copy(from, to);
    }
  }
  k.sync();
  k.copy(tile, y.tile({at.x * count, 0}, {count, 128}));
  return k.finish();
}

/// One value after the other, each made of the one before; the last is an index.
ir::Kernel values_of_values(int count) {
  Builder k("values");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({n}, {.threads = 32});
  Value v = at.x;
  for (int i = 0; i < count; ++i) v = k.let("v", v + i);
  y(v) = x(v);
  return k.finish();
}

void compile(const ir::Kernel& kernel) {
  codegen::cuda::emit(codegen::lower(kernel));
}

/// CPU time of this thread, the least of a few runs.
double seconds_to_compile(const ir::Kernel& kernel) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = 1e9;
  for (int run = 0; run < 3; ++run) {
    const double start = now();
    compile(kernel);
    least = std::min(least, now() - start);
  }
  return least;
}

/// Runs `fn` on a thread with so small a stack as some systems give theirs.
void with_small_stack(const std::function<void()>& fn) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kStack = size_t{4} << 20;  // frames are several times as large
#else
  constexpr size_t kStack = size_t{512} << 10;
#endif
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  const int failure =
      pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&fn));
  pthread_attr_destroy(&attributes);
  REQUIRE(failure == 0);
  pthread_join(thread, nullptr);
}

}  // namespace

TEST_CASE("lowering is not quadratic in the number of statements", "[cost]") {
  struct Program {
    const char* name;
    std::function<ir::Kernel(int)> make;
    int size;
  };
  const Program programs[] = {
      {"loops on one fragment", loops_on_one_fragment, 64},
      {"copies of rows", [](int n) { return copies_of_rows(n, false); }, 64},
      {"copies of rows in the background", [](int n) { return copies_of_rows(n, true); }, 64},
      {"values of values", values_of_values, 1000},
  };
  for (const Program& program : programs) {
    CAPTURE(program.name);
    const double once = seconds_to_compile(program.make(program.size));
    const double four_times = seconds_to_compile(program.make(4 * program.size));
    CHECK(four_times < 9 * once);  // 4 if it is linear, 16 if it is quadratic
  }
}

TEST_CASE("the deepest program that a builder takes is lowered on a small stack", "[cost]") {
  with_small_stack([] {
    Builder k("deep");
    auto n = k.dim("n");
    auto x = k.input("x", DType::f32, {n});
    auto y = k.output("y", DType::f32, {n});
    auto at = k.launch({n}, {.threads = 32});
    std::function<void(int)> nest = [&](int left) {
      if (left > 0) return k.if_(at.x >= left, [&] { nest(left - 1); });
      Value sum = x(at.x), index = at.x;
      for (int i = 0; i < 250; ++i) sum = sum + 1.0f;
      for (int i = 0; i < 8; ++i) index = (index + 1) / 2 * 3;
      y(index) = sum;
    };
    nest(64);
    compile(k.finish());
  });
}

TEST_CASE("a value made of 20000 values is lowered on a small stack", "[cost]") {
  with_small_stack([] { compile(values_of_values(20000)); });
}
