// Tile programs about loops that go down, that take steps of run time, that end early, and about values
// that the author vouches for.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::ReduceOp;
using dsl::Ref;
using dsl::Value;

TEST_CASE("a loop goes down, and takes steps of any size", "[language]") {
  struct Case {
    int begin, end, step;
  };
  const Case c = GENERATE(Case{7, -1, -1}, Case{9, 0, -4}, Case{0, 9, 4}, Case{3, 3, -1},
                          Case{2, 5, -1}, Case{5, 2, 1}, Case{9, 1, -8});
  const bool at_run_time = GENERATE(false, true);
  CAPTURE(c.begin, c.end, c.step, at_run_time);
  Builder k("steps");
  auto bounds = k.input("bounds", DType::i32, {3});
  auto y = k.output("y", DType::i32, {12});
  k.launch({1}, {.threads = 32});
  auto n = k.var(DType::i32, 0, "n");
  const Value begin = bounds(0), end = bounds(1), step = bounds(2);
  k.serial(
      begin, end,
      [&](Value i) {
        y(n) = i;
        n += 1;
      },
      at_run_time ? dsl::Arg(step) : dsl::Arg(c.step));
  y(11) = n;
  const HostTensor source =
      tensor_of(DType::i32, {3}, {double(c.begin), double(c.end), double(c.step)});
  const HostTensor result = tensor_of(DType::i32, {12}, std::vector<double>(12, -9));
  run_kernel(k.finish(), {&source, &result});
  std::vector<double> want;
  if (c.step > 0) {
    for (int i = c.begin; i < c.end; i += c.step) want.push_back(i);
  } else {
    for (int i = c.begin; i > c.end; i += c.step) want.push_back(i);
  }
  const double rounds = static_cast<double>(want.size());
  want.resize(11, -9);
  want.push_back(rounds);
  CHECK(values_of(result) == want);
}

TEST_CASE("a loop that goes down keeps to its buffer without guards", "[language]") {
  Builder k("down");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 32});
  k.if_(k.thread() == 0, [&] {
    auto sum = k.var(DType::i32, 0, "sum");
    k.serial(
        63, -1,
        [&](Value i) {
          sum += x(i);
          y(i) = sum;
        },
        -1);
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result,
             HasValues([&](int64_t i) { return static_cast<double>(63 * 64 - i * (i - 1)) / 2; }));
  CHECK(count(cuda_text(kernel), "if (") == 1);
}

TEST_CASE("a step of 0 is refused, or trapped where it comes at run time", "[language]") {
  const auto program = [](bool at_run_time) {
    Builder k("no_step");
    auto x = k.input("x", DType::i32, {1});
    auto y = k.output("y", DType::i32, {1});
    k.launch({1}, {.threads = 32});
    const Value step = x(0);
    k.serial(
        0, 4, [&](Value i) { y(0) = i; }, at_run_time ? dsl::Arg(step) : dsl::Arg(0));
    return k.finish();
  };
  CHECK(error_of([&] { program(false); }).find("the step of a loop is 0 [LOOP_STEP]") !=
        std::string::npos);
  const HostTensor zero = tensor_of(DType::i32, {1}, {0}), result(DType::i32, {1});
  CHECK(error_of([&] {
          run_on_executor(program(true), {zero.view(), result.view()});
        }).find("[FALSE_ASSUME]") != std::string::npos);
}

TEST_CASE("threads leave a loop in rounds of their own", "[language]") {
  Builder k("own_rounds");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64, 2});
  k.launch({1}, {.threads = 64});
  const Value t = k.let("t", k.thread());
  auto left = k.var(DType::i32, x(t), "left");
  auto sum = k.var(DType::i32, 0, "sum");
  auto rounds = k.var(DType::i32, 0, "rounds");
  k.loop([&](Value round) {
    rounds = round;
    k.break_if(left == 0);
    left -= 1;
    k.if_(round % 2 == 1, [&] {
      k.break_if(round > 20);
      sum += round;
    });
    sum += 100;
  });
  y(t, 0) = sum;
  y(t, 1) = rounds;
  const HostTensor source = iota(DType::i32, {64});
  const HostTensor result(DType::i32, {64, 2});
  run_kernel(k.finish(), {&source, &result});
  for (int64_t thread = 0; thread < 64; ++thread) {
    CAPTURE(thread);
    int64_t want = 0, round = 0;
    for (int64_t rest = thread;; ++round) {
      if (rest == 0) break;
      --rest;
      if (round % 2 == 1) {
        if (round > 20) break;
        want += round;
      }
      want += 100;
    }
    REQUIRE(result.value(thread * 2) == static_cast<double>(want));
    REQUIRE(result.value(thread * 2 + 1) == static_cast<double>(round));
  }
}

TEST_CASE("a block leaves a loop that contains barriers when all have found it", "[language]") {
  // Halves the interval of a bound until as many values lie below it as are wanted.
  const int64_t wanted = GENERATE(1, 17, 64, 200);
  CAPTURE(wanted);
  Builder k("bisect");
  auto x = k.input("x", DType::i32, {256});
  auto y = k.output("y", DType::i32, {2});
  k.launch({1}, {.threads = 128});
  auto values = k.fragment(DType::i32, {256}, "values");
  k.copy(x, values);
  auto low = k.var(DType::i32, 0, "low");
  auto high = k.var(DType::i32, 1024, "high");
  auto rounds = k.var(DType::i32, 0, "rounds");
  k.loop([&] {
    auto below = k.reducer(ReduceOp::sum, DType::i32);
    const Value middle = k.let("middle", (low + high) / 2);
    below.init();
    k.parallel({256}, [&](Value i) { below.update(0, select(values(i) < middle, 1, 0)); });
    const Value found = below.finalize();
    rounds += 1;
    k.break_if(found == wanted);
    k.break_if(rounds == 12);
    k.if_else(
        found < wanted, [&] { low = middle; }, [&] { high = middle; });
  });
  k.if_(k.thread() == 0, [&] {
    y(0) = (low + high) / 2;
    y(1) = rounds;
  });
  HostTensor source(DType::i32, {256});
  for (int64_t i = 0; i < 256; ++i) source.set_value(i, static_cast<double>(i * 37 % 256 * 4));
  const HostTensor result(DType::i32, {2});
  run_kernel(k.finish(), {&source, &result});
  int64_t lower = 0, upper = 1024, count = 0;
  for (;;) {
    ++count;
    const int64_t middle = (lower + upper) / 2;
    const int64_t found = (middle + 3) / 4;
    if (found == wanted || count == 12) break;
    (found < wanted ? lower : upper) = middle;
  }
  CHECK(result.value(0) == static_cast<double>((lower + upper) / 2));
  CHECK(result.value(1) == static_cast<double>(count));
}

TEST_CASE("what a round has written to shared memory meets the next one behind a barrier",
          "[language]") {
  Builder k("ring");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  const Value t = k.let("t", k.thread());
  s(t) = t;
  k.loop([&](Value round) {
    auto next = k.var(DType::i32, s((t + 1) % 64), "next");
    k.break_if(round == 5);
    s(t) = next;
  });
  y(t) = s(63 - t);
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&result});
  CHECK_THAT(result, HasValues([](int64_t i) { return double((63 - i + 5) % 64); }));
}

TEST_CASE("a loop of the block is not left by single threads", "[language]") {
  const auto program = [](bool by_thread, bool has_barrier) {
    Builder k("apart");
    auto x = k.input("x", DType::i32, {64});
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto tile = k.fragment(DType::i32, {64}, "tile");
    auto n = k.var(DType::i32, x(k.thread()), "mine");
    k.loop([&](Value round) {
      if (has_barrier) {
        k.sync();
      } else {
        k.copy(x, tile);
      }
      k.break_if(by_thread ? k.thread() < round : n < round);
    });
    k.copy(tile, y);
    return k.finish();
  };
  const bool has_barrier = GENERATE(false, true);
  const std::string by_thread = error_of([&] { codegen::lower(program(true, has_barrier)); });
  CHECK(by_thread.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(by_thread.find("'thread' is another in each thread") != std::string::npos);
  const std::string by_value = error_of([&] { codegen::lower(program(false, has_barrier)); });
  CHECK(by_value.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(by_value.find("each thread reads another element of 'x'") != std::string::npos);
}

TEST_CASE("a break stands in a loop that it can leave", "[language]") {
  const auto program = [](const auto& body) {
    Builder k("misplaced");
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    body(k, y);
    return k.finish();
  };
  const std::string outside = error_of([&] {
    program([](Builder& k, Ref& y) {
      y(k.thread()) = 1;
      k.break_if(true);
    });
  });
  CHECK(outside.find("break_if() where it can leave no loop [BREAK]") != std::string::npos);
  const std::string other = error_of([&] {
    program([](Builder& k, Ref& y) {
      k.loop([&] { k.unrolled(4, [&](Value i) { k.break_if(y(i) == 1); }); });
    });
  });
  CHECK(other.find("[BREAK]") != std::string::npos);
  const std::string none =
      error_of([&] { program([](Builder& k, Ref& y) { k.loop([&](Value i) { y(i) = 1; }); }); });
  CHECK(none.find("a loop without k.break_if [BREAK]") != std::string::npos);
  const std::string escaped = error_of([&] {
    program([](Builder& k, Ref& y) {
      Value last;
      k.loop([&](Value i) {
        k.break_if(i == 3);
        last = k.let("last", i + 1);
      });
      y(0) = last;
    });
  });
  CHECK(escaped.find("[VALUE_ESCAPED]") != std::string::npos);
}

TEST_CASE("an iteration of a parallel loop has a loop of its own to leave", "[language]") {
  // Steps of the Collatz sequence.
  Builder k("collatz");
  auto y = k.output("y", DType::i32, {100});
  k.launch({1}, {.threads = 32});
  k.parallel({100}, [&](Value i) {
    auto n = k.var(DType::i32, i + 1, "n");
    auto steps = k.var(DType::i32, 0, "steps");
    k.loop([&] {
      k.break_if(n == 1);
      n = select(n % 2 == 0, n / 2, n * 3 + 1);
      steps += 1;
    });
    y(i) = steps;
  });
  const HostTensor result(DType::i32, {100});
  run_kernel(k.finish(), {&result});
  CHECK_THAT(result, HasValues([](int64_t i) {
               double steps = 0;
               for (int64_t n = i + 1; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : n * 3 + 1;
               return steps;
             }));
}

TEST_CASE("blocks take tiles from a counter until none is left", "[language]") {
  constexpr int64_t kTiles = 23;
  const bool pipelined = GENERATE(false, true);
  CAPTURE(pipelined);
  Builder k("dynamic");
  auto x = k.input("x", DType::f32, {kTiles * 4, 64});
  auto y = k.output("y", DType::f32, {kTiles * 4, 16});
  auto counter = k.output("counter", DType::i32, {1});
  k.launch({3}, {.threads = 64});
  auto ticket = k.shared(DType::i32, {1}, "ticket");
  auto tile = k.shared(DType::f32, {4, 16}, "tile");
  auto sum = k.fragment(DType::f32, {4, 16}, "sum");
  k.loop([&] {
    k.if_(k.thread() == 0, [&] { ticket(0) = k.atomic_fetch_add(counter(0), 1); });
    const Value mine = ticket(0);
    k.break_if(mine >= kTiles);
    k.fill(sum, 0.0f);
    const auto step = [&](Value s) {
      k.copy(x.tile({mine * 4, s * 16}, {4, 16}), tile);
      k.parallel({4, 16}, [&](Value i, Value j) { sum(i, j) += tile(i, j); });
    };
    // As many steps as the tile says.
    const Value steps = k.let("steps", mine % 5);
    if (pipelined) {
      k.pipelined(0, steps, 3, step);
    } else {
      k.serial(0, steps, step);
    }
    k.copy(sum, y.tile({mine * 4, 0}, {4, 16}));
  });
  const HostTensor source = iota(DType::f32, {kTiles * 4, 64});
  const HostTensor result(DType::f32, {kTiles * 4, 16});
  const HostTensor tickets = tensor_of(DType::i32, {1}, {0});
  const ir::Kernel kernel = k.finish();
  run_kernel(kernel, {&source, &result, &tickets});
  CHECK(tickets.value(0) == kTiles + 3);
  CHECK_THAT(result, HasValues([&](int64_t e) {
               const int64_t row = e / 16, column = e % 16;
               double want = 0;
               for (int64_t s = 0; s < row / 4 % 5; ++s) {
                 want += source.value(row * 64 + s * 16 + column);
               }
               return want;
             }));
  if (pipelined) CHECK(count(cuda_text(kernel), "copy_async") > 0);
}

TEST_CASE("a block works through a list that it has made", "[language]") {
  Builder k("list");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto list = k.shared(DType::i32, {64}, "list");
  auto length = k.shared(DType::i32, {1}, "length");
  auto tile = k.shared(DType::i32, {64}, "tile");
  const Value t = k.let("t", k.thread());
  k.if_(t == 0, [&] { length(0) = 0; });
  k.if_(x(t) % 3 == 0, [&] { list(k.atomic_fetch_add(length(0), 1)) = t; });
  auto sum = k.var(DType::i32, 0, "sum");
  k.serial(0, length(0), [&](Value i) {
    const Value row = list(i);
    k.parallel({64}, [&](Value j) { tile(j) = row + j; });
    sum += tile(63 - t);
  });
  y(t) = sum;
  const HostTensor source = iota(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) {
               double want = 0;
               for (int row = 0; row < 64; row += 3) want += static_cast<double>(row + 63 - i);
               return want;
             }));
}

TEST_CASE("the author vouches for a value that steers barriers", "[language]") {
  const auto program = [](int plan) {  // 0: without a word, 1: vouched for, 2: wrongly
    Builder k("vouched");
    auto x = k.input("x", DType::i32, {64});
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    const Value t = k.let("t", k.thread());
    const Value count = k.let("count", x(t) / (plan == 2 ? 32 : 64) + 3);
    auto mine = k.var(DType::i32, t, "mine");
    k.serial(0, plan == 0 ? count : k.uniform(count), [&](Value) {
      s(t) = mine;
      mine = s((t + 1) % 64);
    });
    y(t) = mine;
    return k.finish();
  };
  const std::string without = error_of([&] { codegen::lower(program(0)); });
  CHECK(without.find("[SYNC_DIVERGENT]") != std::string::npos);
  const HostTensor source = iota(DType::i32, {64});
  const HostTensor result(DType::i32, {64});
  run_kernel(program(1), {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return double((i + 3) % 64); }));
  const std::string wrong = error_of([&] {
    run_on_executor(program(2), {source.view(), result.view()});
  });
  INFO(wrong);
  CHECK(wrong.find("'uniform' differs between threads of the block (thread 32") !=
        std::string::npos);
  CHECK(wrong.find("thread 32") != std::string::npos);
}
