// Tile programs about the iterations of a parallel loop: what happens once where several threads run
// one iteration, and what one iteration may see of another.

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::ExternFunction;
using dsl::Value;

TEST_CASE("a loop of fewer iterations than threads updates global memory in place", "[language]") {
  // All threads hold what the loop leaves in f: none of them may read x after the store.
  Builder k("inplace_copies");
  auto x = k.output("x", DType::f32, {32});
  auto y = k.output("y", DType::f32, {2, 32});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::f32, {32}, "f");
  auto g = k.fragment(DType::f32, {2, 32}, "g");
  k.parallel({32}, [&](Value i) {
    f(i) = x(i);
    x(i) = f(i) + 100.0f;
  });
  k.parallel({2, 32}, [&](Value j, Value i) { g(j, i) = f(i); });
  k.copy(g, y);
  const HostTensor in_place = iota(DType::f32, {32});
  const HostTensor result(DType::f32, {2, 32});
  run_kernel(k.finish(), {&in_place, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 100; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 32; }));
}

TEST_CASE("a column scan in place leaves its sums in every copy of a fragment", "[language]") {
  Builder k("inplace_scan");
  auto x = k.output("x", DType::i32, {4, 32});
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 128});
  auto sum = k.fragment(DType::i32, {32}, "sum");
  auto copies = k.fragment(DType::i32, {128}, "copies");
  k.fill(sum, 0);
  k.parallel({32}, [&](Value i) {
    k.serial(0, 4, [&](Value row) {
      sum(i) += x(row, i);
      x(row, i) = sum(i);
    });
  });
  k.parallel({128}, [&](Value i) { copies(i) = sum(i % 32); });
  k.copy(copies, y);
  const HostTensor in_place = iota(DType::i32, {4, 32});
  const HostTensor result(DType::i32, {128});
  run_kernel(k.finish(), {&in_place, &result});
  const auto sum_to = [](int64_t row, int64_t column) {
    return 32 * row * (row + 1) / 2 + (row + 1) * column;
  };
  CHECK_THAT(in_place, HasValues([&](int64_t i) { return sum_to(i / 32, i % 32); }));
  CHECK_THAT(result, HasValues([&](int64_t i) { return sum_to(3, i % 32); }));
}

TEST_CASE("row statistics that lanes share are updated from a tensor in place", "[language]") {
  // The lanes of a row hold copies of m after the reduction.
  Builder k("inplace_statistics");
  auto x = k.input("x", DType::i32, {32, 32});
  auto z = k.output("z", DType::i32, {32});
  auto y = k.output("y", DType::i32, {32, 32});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {32, 32}, "f");
  auto m = k.fragment(DType::i32, {32}, "m");
  k.copy(x, f);
  k.reduce_max(f, m, dsl::Axis(1));
  k.parallel({32}, [&](Value i) {
    m(i) = m(i) + z(i);
    z(i) = m(i);
  });
  k.parallel({32, 32}, [&](Value i, Value j) { f(i, j) = m(i); });
  k.copy(f, y);
  const HostTensor source = iota(DType::i32, {32, 32});
  const HostTensor in_place = iota(DType::i32, {32});
  const HostTensor result(DType::i32, {32, 32});
  run_kernel(k.finish(), {&source, &in_place, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return 33 * i + 31; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return 33 * (i / 32) + 31; }));
}

TEST_CASE("a reducer of an in-place loop has one value in all threads", "[language]") {
  Builder k("inplace_reducer");
  auto x = k.output("x", DType::i32, {32});
  auto y = k.output("y", DType::i32, {64});
  auto z = k.output("z", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {32}, "f");
  auto g = k.fragment(DType::i32, {64}, "g");
  auto sum = k.reducer(dsl::ReduceOp::sum, DType::i32);
  sum.init();
  k.parallel({32}, [&](Value i) {
    f(i) = x(i);
    x(i) = f(i) + 1;
    sum.update(f(i));
  });
  const Value total = sum.finalize();
  y(k.thread()) = total;
  k.parallel({64}, [&](Value i) { g(i) = f(i % 32); });
  k.copy(g, z);
  const HostTensor in_place = iota(DType::i32, {32});
  const HostTensor totals(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&in_place, &totals, &result});
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 1; }));
  CHECK_THAT(totals, HasValues([](int64_t) { return 496; }));
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 32; }));
}

TEST_CASE("an in-place loop with registers of its own does not trap", "[language]") {
  const HostTensor in_place = iota(DType::f32, {32});
  SECTION("a variable") {
    Builder k("inplace_var");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    k.parallel({32}, [&](Value i) {
      auto v = k.var(DType::f32, x(i), "v");
      x(i) = v + 1.0f;
    });
    run_kernel(k.finish(), {&in_place});
  }
  SECTION("a vectorized loop through registers") {
    Builder k("inplace_vector");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    k.parallel({8}, [&](Value i) {
      auto v = k.local(DType::f32, {4}, "v");
      k.vectorized(4, [&](Value lane) { v(lane) = x(i * 4 + lane); });
      k.vectorized(4, [&](Value lane) { x(i * 4 + lane) = v(lane) + 1.0f; });
    });
    run_kernel(k.finish(), {&in_place});
  }
  SECTION("a fragment that nothing else uses") {
    Builder k("inplace_own_fragment");
    auto x = k.output("x", DType::f32, {32});
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(DType::f32, {32}, "f");
    k.parallel({32}, [&](Value i) {
      f(i) = x(i);
      x(i) = f(i) + 1.0f;
    });
    run_kernel(k.finish(), {&in_place});
  }
  CHECK_THAT(in_place, HasValues([](int64_t i) { return i + 1; }));
}

TEST_CASE("an impure function is called once per iteration in fewer iterations than threads",
          "[language]") {
  static std::atomic<int> calls;
  ExternFunction next;
  next.name = "next_ticket";
  next.source = "__device__ int next_ticket(int x) { return x + 1; }\n";
  next.result = DType::i32;
  next.params = {DType::i32};
  next.pure = false;
  next.model = [](void* result, const void* const* args) {
    ++calls;
    int x = 0;
    std::memcpy(&x, args[0], sizeof x);
    ++x;
    std::memcpy(result, &x, sizeof x);
  };
  const bool keeps_result = GENERATE(false, true);
  CAPTURE(keeps_result);
  Builder k("impure_calls");
  auto y = k.output("y", DType::i32, {keeps_result ? 64 : 4});
  k.launch({1}, {.threads = 64});
  auto f = k.fragment(DType::i32, {4}, "f");
  auto g = k.fragment(DType::i32, {64}, "g");
  k.parallel({4}, [&](Value i) {
    const Value ticket = k.call(next, {i});
    if (keeps_result) {
      f(i) = ticket;
    } else {
      y(i) = ticket;
    }
  });
  if (keeps_result) {
    k.parallel({64}, [&](Value i) { g(i) = f(i % 4); });
    k.copy(g, y);
  }
  const HostTensor result(DType::i32, {keeps_result ? 64 : 4});
  calls = 0;
  run_kernel(k.finish(), {&result});
  CHECK(calls == 4);
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 4 + 1; }));
}

namespace {

/// The error of a program of one parallel loop over 64 elements of `s`, x[64] copied into it first.
std::string error_of_loop(int threads,
                          const std::function<void(Builder&, const dsl::Ref& s, Value i)>& body) {
  return error_of([&] {
    Builder k("order");
    auto x = k.input("x", DType::i32, {64});
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = threads});
    auto s = k.shared(DType::i32, {64}, "s");
    k.copy(x, s);
    k.parallel({64}, [&](Value i) { body(k, s, i); });
    k.copy(s, y);
    codegen::lower(k.finish());
  });
}

}  // namespace

TEST_CASE("a loop whose iterations read what others write is refused at any block size",
          "[language]") {
  const int threads = GENERATE(32, 64, 128);
  CAPTURE(threads);
  const std::string text = error_of_loop(
      threads, [](Builder&, const dsl::Ref& s, Value i) { s(i) = s((i + 1) % 64) + 1; });
  CHECK(text.find("order: an iteration of a parallel loop reads from shared 's' what another "
                  "iteration writes [ITERATION_ORDER]") != std::string::npos);
  CHECK(
      text.find("expected  iterations that read only what they write themselves, or what the loop "
                "leaves alone") != std::string::npos);
  CHECK(text.find("got       iteration (0) reads an element that iteration (1) writes") !=
        std::string::npos);
  CHECK(text.find("hint      read into a fragment in one parallel loop and write in the next") !=
        std::string::npos);
  CHECK(text.find("iterations_test.cpp") != std::string::npos);
}

TEST_CASE("the order of iterations is seen through lets, conditions and inner loops",
          "[language]") {
  const auto refused = [](const std::string& text) {
    return text.find("ITERATION_ORDER") != std::string::npos;
  };
  CHECK(refused(error_of_loop(64, [](Builder& k, const dsl::Ref& s, Value i) {
    const Value other = k.let("other", 63 - i);
    s(i) = s(other);
  })));
  CHECK(refused(error_of_loop(
      64, [](Builder& k, const dsl::Ref& s, Value i) { k.if_(i < 8, [&] { s(i) = s(i + 1); }); })));
  CHECK(refused(error_of_loop(64, [](Builder& k, const dsl::Ref& s, Value i) {
    auto sum = k.var(DType::i32, 0, "sum");
    k.serial(0, 4, [&](Value j) { sum += s(i / 4 * 4 + j); });
    s(i) = sum;
  })));
  CHECK(refused(
      error_of_loop(64, [](Builder&, const dsl::Ref& s, Value i) { s(i / 2) = s(i / 2) + 1; })));
  const std::string turned = error_of([] {
    Builder k("turned");
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    k.fill(s, 1);
    k.serial(0, 4, [&](Value t) {
      k.parallel({64}, [&](Value i) { s(i) = s((i + t) % 64) + 1; });  // its own at first
    });
    k.copy(s, y);
    codegen::lower(k.finish());
  });
  CHECK(refused(turned));
  CHECK(refused(error_of_loop(64, [](Builder& k, const dsl::Ref& s, Value i) {
    k.atomic_add(s(0), 1);
    k.if_(i > 0, [&] { s(i) = s(0); });
  })));
}

TEST_CASE("loops whose iterations keep to themselves are not refused for their order",
          "[language]") {
  Builder k("apart_iterations");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 32});
  auto s = k.shared(DType::i32, {64}, "s");
  auto buffers = k.shared(DType::i32, {2, 64}, "buffers");
  auto counts = k.shared(DType::i32, {4}, "counts");
  auto square = s.reshape({8, 8});
  k.copy(x, s);
  k.fill(counts, 0);
  k.parallel({64}, [&](Value i) { s(i) = s(i) + 1; });  // its own element
  k.parallel({8, 8}, [&](Value i, Value j) { square(i, j) = s(i * 8 + j) + 1; });  // through a view
  k.parallel({32}, [&](Value i) { s(i) = s(i + 32) + s(i); });  // what the loop leaves alone
  k.parallel({16}, [&](Value i) {                               // its own four elements
    k.serial(0, 3, [&](Value j) { s(i * 4 + j + 1) = s(i * 4 + j) + s(i * 4 + j + 1); });
  });
  k.parallel({64}, [&](Value i) { k.atomic_add(counts(i % 4), 1); });  // atomics with atomics
  k.serial(
      0, 128,
      [&](Value t) {  // of t = 0 and 64 alone, its own
        k.parallel({64}, [&](Value i) { s(i) = s((i + t) % 64); });
      },
      64);
  k.parallel({64}, [&](Value i) { buffers(0, i) = s(i); });
  k.serial(0, 3, [&](Value t) {  // of the other buffer
    k.parallel({64}, [&](Value i) { buffers((t + 1) % 2, i) = buffers(t % 2, 63 - i) + 1; });
  });
  k.parallel({64}, [&](Value i) { y(i) = buffers(1, i) * 100 + counts(i % 4); });
  const HostTensor source = iota(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&source, &result});
  std::vector<int64_t> want(64);
  for (int64_t i = 0; i < 64; ++i) want[static_cast<size_t>(i)] = i + 2;
  for (size_t i = 0; i < 32; ++i) want[i] += want[i + 32];
  for (size_t i = 0; i < 64; ++i) {
    if (i % 4 > 0) want[i] += want[i - 1];
  }
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return (want[static_cast<size_t>(63 - i)] + 3) * 100 + 16;
             }));
}
