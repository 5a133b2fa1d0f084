// Tile programs about barriers: how few, of what kind, and where there must be none; and about
// leaving early.

#include <functional>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Arg;
using dsl::Builder;
using dsl::Value;

TEST_CASE("a ping-pong buffer needs one barrier per round (S04)", "[language]") {
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
  CHECK_THAT(result, HasValues([&](int64_t r) {
               double want = 0;
               for (int64_t i = 0; i < 5; ++i) want += source.value(i * 64 + 63 - r);
               return want;
             }));
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 1);
}

TEST_CASE("a conflict among the first 48 threads is rejected (S05)", "[language]") {
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

TEST_CASE("a tensor at an address of each thread's own makes a condition differ (S05)",
          "[language]") {
  Builder k("address_of_thread");
  auto table = k.input("table", DType::u64, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  auto flag = k.tensor_at(table(k.thread()), DType::i32, {1}, {.align = 4}, "flag");
  k.if_(flag(0) > 0, [&] {
    s(k.thread()) = k.thread();
    y(k.thread()) = s(63 - k.thread());
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { codegen::lower(kernel); });
  CHECK(text.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(text.find("each thread reads another element of 'flag'") != std::string::npos);
}

TEST_CASE("the condition that splits a warp is named, not one that it meets whole (S05)",
          "[language]") {
  Builder k("splits_a_warp");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  k.if_(k.thread() % 2 == 0, [&] {
    k.if_(k.thread() < 32, [&] {
      s(k.thread()) = k.thread();
      y(k.thread()) = s(30 - k.thread());
    });
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { codegen::lower(kernel); });
  CHECK(text.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(text.find("the condition thread % 2 == 0") != std::string::npos);
}

TEST_CASE("arms that different threads take may not meet in shared memory (S05)", "[language]") {
  const auto program = [](int threads_of_then, bool write_first, int turned) {
    Builder k("arms");
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    const Value t = k.thread();
    const auto write = [&] { s(turned - t) = 1; };
    const auto read = [&] { y(t) = s(t); };
    s(t) = 7;
    k.sync();
    if (write_first) {
      k.if_else(t < threads_of_then, write, read);
    } else {
      k.if_else(t < threads_of_then, read, write);
    }
    return k.finish();
  };
  const bool write_first = GENERATE(true, false);
  CAPTURE(write_first);
  const std::string error = error_of([&] { codegen::lower(program(32, write_first, 63)); });
  CHECK(error.find("SYNC_DIVERGENT") != std::string::npos);
  CHECK(error.find("shared 's'") != std::string::npos);
  // Threads of one warp, too: the arms take turns there, in no order.
  CHECK(error_of([&] { codegen::lower(program(16, write_first, 63)); }).find("SYNC_DIVERGENT") !=
        std::string::npos);
  const std::string in_warp = error_of([&] {
    Builder k("arms_of_a_warp");
    auto y = k.output("y", DType::i32, {32});
    k.launch({1}, {.threads = 32});
    auto s = k.shared(DType::i32, {32}, "s");
    const Value t = k.thread();
    k.if_else(
        t < 16, [&] { s(31 - t) = 1; }, [&] { y(t) = s(t); });
    codegen::lower(k.finish());
  });
  CHECK(in_warp.find("SYNC_DIVERGENT") != std::string::npos);
}

TEST_CASE("arms that keep to different elements need no order (S05)", "[language]") {
  Builder k("apart");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  const Value t = k.thread();
  s(t) = t;
  k.if_else(
      t % 2 == 0, [&] { s(t) = s(t) + 100; }, [&] { y(t) = s(t); });
  k.if_(t % 2 == 0, [&] { y(t) = s(t); });
  HostTensor result(DType::i32, {64});
  const ir::Kernel kernel = k.finish();
  run_kernel(kernel, {&result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i % 2 == 0 ? i + 100 : i; }));
  CHECK(count(cuda_text(kernel), "__sync") == 0);
}

TEST_CASE("neighbours of one warp exchange through shared memory with a warp barrier (S08)",
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
  CHECK_THAT(result, HasValues([](int64_t i) { return i ^ 1; }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "__syncwarp();") == 1);
  CHECK(count(text, "__syncthreads();") == 0);
}

TEST_CASE("a fill and a copy over part of it are ordered (S09)", "[language]") {
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
  CHECK_THAT(result, HasValues([&](int64_t i) {
               const int64_t from = 255 - i;
               return from >= 32 && from < 160 ? source.value(from - 32) : 7;
             }));
  CHECK(count(cuda_text(kernel), "__syncthreads();") == 2);
}

TEST_CASE("leaving before a barrier is rejected unless the whole block leaves (S12)",
          "[language]") {
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
  CHECK_THAT(result, HasValues([](int64_t i) { return 63 - i % 64; }));
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
  CHECK_THAT(result, HasValues([](int64_t e) { return e; }));
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

TEST_CASE("what the compiler keeps in shared memory is ordered in a manual-sync region, too",
          "[language]") {
  using Body = std::function<void(Builder&, const dsl::Ref& x, const dsl::Ref& y)>;
  const auto run = [](const Body& body) {
    Builder k("own_memory");
    auto x = k.input("x", DType::i32, {128});
    auto y = k.output("y", DType::i32, {128});
    k.launch({1}, {.threads = 128});
    k.manual_sync([&] { body(k, x, y); });
    const HostTensor source = iota(DType::i32, {128});
    HostTensor result(DType::i32, {128});
    run_kernel(k.finish(), {&source, &result});
    return result;
  };
  const HostTensor reversed = run([](Builder& k, const dsl::Ref& x, const dsl::Ref& y) {
    auto tile = k.fragment(DType::i32, {128}, "tile");
    k.copy(x, tile);
    k.parallel({128}, [&](Value i) { y(i) = tile(127 - i); });
    k.parallel({128}, [&](Value i) { tile(127 - i) = x(i); });
    k.copy(tile, y);
  });
  CHECK_THAT(reversed, HasValues([](int64_t i) { return 127 - i; }));
  const HostTensor scanned = run([](Builder& k, const dsl::Ref& x, const dsl::Ref& y) {
    auto tile = k.fragment(DType::i32, {128}, "tile");
    k.copy(x, tile);
    k.scan_sum(tile, tile, dsl::Axis(0));
    k.copy(tile, y);
  });
  CHECK_THAT(scanned, HasValues([](int64_t i) { return i * (i + 1) / 2; }));
  const HostTensor summed = run([](Builder& k, const dsl::Ref& x, const dsl::Ref& y) {
    auto sum = k.reducer(dsl::ReduceOp::sum, DType::i32);
    sum.init();
    k.parallel({128}, [&](Value i) { sum.update(x(i)); });
    y(k.thread()) = sum.finalize();
  });
  CHECK_THAT(summed, HasValues([](int64_t) { return 127 * 64; }));
  const HostTensor by_columns = run([](Builder& k, const dsl::Ref& x, const dsl::Ref& y) {
    auto tile = k.fragment(DType::i32, {64, 2}, "tile");
    auto sums = k.fragment(DType::i32, {2}, "sums");
    k.parallel({64, 2}, [&](Value r, Value c) { tile(r, c) = x(r * 2 + c); });
    k.reduce_sum(tile, sums, dsl::Axis(0));
    k.parallel({64, 2}, [&](Value r, Value c) { y(r * 2 + c) = sums(c); });
  });
  CHECK_THAT(by_columns, HasValues([](int64_t i) { return 64 * 63 + i % 2 * 64; }));
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
  CHECK_THAT(result, HasValues([](int64_t e) {
               int64_t want = e;
               for (int64_t step = 0; step < 3; ++step) want += want % 2 == 0 ? step : 0;
               return want;
             }));
}

TEST_CASE("a loop bound that the block has computed may stand around barriers", "[language]") {
  const std::string kind =
      GENERATE("shared element", "reducer", "variable", "counted variable", "warp vote");
  CAPTURE(kind);
  const int threads = kind == "warp vote" ? 32 : 128;
  Builder k("computed_bound");
  auto x = k.input("x", DType::i32, {threads});
  auto y = k.output("y", DType::i32, {threads});
  k.launch({1}, {.threads = threads});
  auto s = k.shared(DType::i32, {threads}, "s");
  auto n = k.shared(DType::i32, {1}, "n");
  Value rounds;
  if (kind == "shared element") {
    k.fill(n, 0);
    k.if_(x(k.thread()) == 1, [&] { k.atomic_add(n(0), 1); });
    rounds = k.let("rounds", n(0) + 2);
  } else if (kind == "reducer") {
    auto sum = k.reducer(dsl::ReduceOp::max, DType::i32);
    sum.init();
    k.parallel({threads}, [&](Value i) { sum.update(x(i) % 4); });
    rounds = sum.finalize();
  } else if (kind == "variable") {
    rounds = k.var(DType::i32, x(3), "rounds");
  } else if (kind == "counted variable") {
    auto v = k.var(DType::i32, 0, "v");
    k.serial(0, x(5), [&](Value i) { k.if_(i % 2 == 0, [&] { v += 1; }); });
    rounds = v;
  } else {
    rounds = dsl::select(k.warp_all(x(k.thread()) >= 0), 3, 9);
  }
  auto sum = k.var(DType::i32, 0, "sum");
  k.serial(0, rounds, [&](Value round) {
    s(k.thread()) = k.thread() + round;
    sum += s(threads - 1 - k.thread());
  });
  y(k.thread()) = sum;
  const HostTensor source = iota(DType::i32, {threads});
  const HostTensor result(DType::i32, {threads});
  run_kernel(k.finish(), {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) { return 3 * (threads - 1 - i) + 3; }));
}

TEST_CASE("a barrier that threads may miss names the bound or condition and the value that differs",
          "[language]") {
  const auto text = [](const std::function<Value(Builder&, const dsl::Ref& x)>& bound) {
    return error_of([&] {
      Builder k("differs");
      auto x = k.output("x", DType::i32, {128});
      auto y = k.output("y", DType::i32, {128});
      k.launch({1}, {.threads = 128});
      auto s = k.shared(DType::i32, {128}, "s");
      k.serial(0, bound(k, x), [&](Value) {
        s(k.thread()) = k.thread();
        y(k.thread()) = s(127 - k.thread());
      });
      codegen::lower(k.finish());
    });
  };
  const std::string of_thread =
      text([](Builder& k, const dsl::Ref&) { return k.let("rounds", k.thread() + 1); });
  CHECK(of_thread.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(of_thread.find(
            "expected  conditions and loop bounds that are the same for the whole block") !=
        std::string::npos);
  CHECK(of_thread.find("got       the loop bound rounds at sync_test.cpp:") != std::string::npos);
  CHECK(of_thread.find(": 'thread' is another in each thread") != std::string::npos);
  const std::string of_variable = text([](Builder& k, const dsl::Ref&) {
    auto lo = k.var(DType::i32, 0, "lo");
    k.if_(k.thread() < 5, [&] { lo = 3; });
    return Value(lo);
  });
  CHECK(of_variable.find(": 'lo' is set by each thread for itself") != std::string::npos);
  const std::string of_tensor = text([](Builder&, const dsl::Ref& x) { return Value(x(0)); });
  CHECK(of_tensor.find(": 'x' is a tensor that the kernel may write") != std::string::npos);
  const std::string of_index =
      text([](Builder& k, const dsl::Ref& x) { return Value(x(k.thread())); });
  CHECK(of_index.find(": each thread reads another element of 'x'") != std::string::npos);
  const std::string of_author = text([](Builder& k, const dsl::Ref&) {
    auto n = k.shared(DType::i32, {1}, "n");
    Value bound;
    k.manual_sync([&] {
      k.if_(k.thread() == 0, [&] { n(0) = 4; });
      k.sync();
    });
    bound = k.let("bound", n(0));
    return bound;
  });
  CHECK(of_author.find(": 'n' is ordered by the author's barriers alone") != std::string::npos);
  const std::string condition = error_of([] {
    Builder k("differs");
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    k.if_(k.thread() < 48, [&] {
      s(k.thread()) = k.thread();
      y(k.thread()) = s(47 - k.thread());
    });
    codegen::lower(k.finish());
  });
  CHECK(condition.find("got       the condition thread < 48 at sync_test.cpp:") !=
        std::string::npos);
}
