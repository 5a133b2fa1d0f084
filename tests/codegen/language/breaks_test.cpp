// Counted loops that end early: serial, pipelined and persistent ones.

#include <algorithm>
#include <cstring>
#include <string>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
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

constexpr int64_t kSteps = 11;

struct Sum {
  int stages = 2;
  bool in_place = false;
  bool by_bulk = false;
  bool constant_bounds = true;
  int again = 1;  // loops, one after the other
};

/// y[b] = the rows of 256 elements of x[b], added up until one begins with a negative number: that one counts.
ir::Kernel sum_until_negative(const Sum& options) {
  Builder k("sum_until_negative");
  auto blocks = k.dim("blocks"), steps = k.dim("steps");
  auto x = k.input("x", DType::f32, {blocks, steps, 256});
  auto y = k.output("y", DType::f32, {blocks, 256});
  auto rounds = k.output("rounds", DType::i32, {blocks});
  const dsl::BlockIndex at = k.launch({blocks}, {.threads = 128});
  auto tile = k.shared(DType::f32, {1, 256}, "tile");
  auto sum = k.fragment(DType::f32, {256}, "sum");
  auto count = k.var(DType::i32, 0, "count");
  k.fill(sum, 0.0f);
  const auto step = [&](Value s) {
    const Ref row = x(at.x).tile({s, 0}, {1, 256});
    k.copy(options.by_bulk ? row.bulk() : row, tile);
    k.parallel({256}, [&](Value i) { sum(i) += tile(0, i); });
    count += 1;
    k.break_if(tile(0, 0) < 0.0f);
  };
  const dsl::Arg end = options.constant_bounds ? dsl::Arg(kSteps) : dsl::Arg(steps);
  for (int loop = 0; loop < options.again; ++loop) {
    if (options.stages == 0) {
      k.serial(0, end, step);
    } else {
      k.pipelined(0, end, {.stages = options.stages, .in_place = options.in_place}, step);
    }
  }
  k.copy(sum, y(at.x));
  k.if_(k.thread() == 0, [&] { rounds(at.x) = count; });
  return k.finish();
}

/// Block b ends after b + 1 rows; the last one never finds a negative number.
HostTensor rows_of(int64_t blocks) {
  return tensor_by(DType::f32, {blocks, kSteps, 256}, [](int64_t e) {
    const int64_t block = e / 256 / kSteps, row = e / 256 % kSteps, i = e % 256;
    if (i == 0 && row == block) return int64_t{-5};
    return row * 10 + i % 7 + (i == 0 ? 1 : 0);
  });
}

void check_sum(const Sum& options) {
  constexpr int64_t kBlocks = kSteps + 1;
  const HostTensor x = rows_of(kBlocks);
  const HostTensor y(DType::f32, {kBlocks, 256});
  const HostTensor rounds(DType::i32, {kBlocks});
  run_kernel(sum_until_negative(options), {&x, &y, &rounds});
  for (int64_t b = 0; b < kBlocks; ++b) {
    CAPTURE(b);
    const int64_t taken = std::min(b + 1, kSteps);
    REQUIRE(rounds.value(b) == static_cast<double>(taken * options.again));
    for (const int64_t i : {0, 1, 100, 255}) {
      double want = 0;
      for (int64_t row = 0; row < taken; ++row) want += x.value((b * kSteps + row) * 256 + i);
      REQUIRE(y.value(b * 256 + i) == want * options.again);
    }
  }
}

}  // namespace

TEST_CASE("a serial loop ends when the block has found what it looks for", "[language]") {
  check_sum({.stages = 0, .constant_bounds = GENERATE(true, false)});
}

TEST_CASE("a pipelined loop that ends early waits for the copies under way",
          "[language][pipeline]") {
  Sum options;
  options.stages = GENERATE(2, 4);
  options.in_place = GENERATE(false, true);
  options.by_bulk = GENERATE(false, true);
  options.constant_bounds = GENERATE(true, false);
  options.again = GENERATE(1, 2);
  CAPTURE(options.stages, options.in_place, options.by_bulk, options.constant_bounds,
          options.again);
  check_sum(options);
}

TEST_CASE("threads leave a serial loop in rounds of their own", "[language]") {
  // The last index, going down, at which x has the thread's number; -1 if there is none.
  Builder k("find_last");
  auto x = k.input("x", DType::i32, {100});
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  const Value t = k.let("t", k.thread());
  auto found = k.var(DType::i32, -1, "found");
  k.serial(
      99, -1,
      [&](Value i) {
        k.if_(x(i) == t, [&] {
          found = i;
          k.break_if(true);
        });
      },
      -1);
  y(t) = found;
  const HostTensor values = tensor_by(DType::i32, {100}, [](int64_t i) { return i % 60; });
  const HostTensor result(DType::i32, {64});
  run_kernel(k.finish(), {&values, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i >= 60 ? -1 : i + 60 < 100 ? i + 60 : i; }));
}

TEST_CASE("a loop inside a loop is left alone, and each block leaves its tiles early",
          "[language]") {
  Builder k("nested");
  auto limit = k.input("limit", DType::i32, {1});
  auto y = k.output("y", DType::i32, {24});
  k.launch({3}, {.threads = 32});
  const Value most = k.let("most", limit(0));
  k.persistent({4, 6}, [&](Value row, Value column) {
    k.break_if(row * 6 + column >= most);
    auto sum = k.var(DType::i32, 0, "sum");
    k.serial(0, 10, [&](Value i) {
      k.break_if(i > row);
      k.serial(0, 10, [&](Value j) {
        k.break_if(j > column);
        sum += 1;
      });
      sum += 100;
    });
    k.if_(k.thread() == 0, [&] { y(row * 6 + column) = sum; });
  });
  const ir::Kernel kernel = k.finish();
  const int64_t most_tiles = GENERATE(0, 7, 24);
  const HostTensor limits = tensor_of(DType::i32, {1}, {static_cast<double>(most_tiles)});
  const HostTensor result = tensor_by(DType::i32, {24}, [](int64_t) { return -1; });
  run_kernel(kernel, {&limits, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return i >= most_tiles ? -1 : (i / 6 + 1) * (i % 6 + 1) + 100 * (i / 6 + 1);
             }));
}

TEST_CASE("a product ends early, with the same sums on every target", "[language][pipeline]") {
  Builder k("early_product");
  auto a = k.input("a", DType::bf16, {64, 256});
  auto b = k.input("b", DType::bf16, {64, 256});
  auto last = k.input("last", DType::i32, {1});
  auto c = k.output("c", DType::f32, {64, 64});
  k.launch({1}, {.threads = 128});
  auto a_tile = k.shared(DType::bf16, {64, 32}, "a_tile");
  auto b_tile = k.shared(DType::bf16, {64, 32}, "b_tile");
  auto sum = k.fragment(DType::f32, {64, 64}, "sum");
  const Value end = k.let("end", last(0));
  k.fill(sum, 0.0f);
  k.pipelined(0, 8, 4, [&](Value s) {
    k.copy(a.tile({0, s * 32}, {64, 32}), a_tile);
    k.copy(b.tile({0, s * 32}, {64, 32}), b_tile);
    k.gemm(a_tile, b_tile.transposed(), sum);
    k.break_if(s == end);
  });
  k.copy(sum, c);
  const ir::Kernel kernel = k.finish();
  const int64_t end_step = GENERATE(0, 3, 7, 9);
  const HostTensor left = tensor_by(DType::bf16, {64, 256}, [](int64_t i) { return i % 5; });
  const HostTensor right = tensor_by(DType::bf16, {64, 256}, [](int64_t i) { return i % 3 - 1; });
  const HostTensor ends = tensor_of(DType::i32, {1}, {static_cast<double>(end_step)});
  const HostTensor result(DType::f32, {64, 64});
  const auto check = [&] {
    CHECK_THAT(result, HasValues([&](int64_t e) {
                 double want = 0;
                 for (int64_t d = 0; d < std::min<int64_t>(end_step + 1, 8) * 32; ++d) {
                   want += left.value(e / 64 * 256 + d) * right.value(e % 64 * 256 + d);
                 }
                 return want;
               }));
  };
  run_kernel(kernel, {&left, &right, &ends, &result});
  check();
  // By wgmma, whose product may be under way when the loop ends.
  const codegen::Program program = codegen::lower(kernel, parse_target("sm_90a").value());
  CHECK(codegen::to_string(program).find("wgmma") != std::string::npos);
  const codegen::cpu::Argument arguments[] = {{.tensor = left.view()},
                                              {.tensor = right.view()},
                                              {.tensor = ends.view()},
                                              {.tensor = result.view()}};
  std::memset(result.view().data, 0xFF, 64 * 64 * sizeof(float));
  codegen::cpu::Executable(program).run(arguments, {.traps = true});
  check();
}

TEST_CASE("a counted loop of the block is not left by single threads", "[language]") {
  const bool pipelined = GENERATE(false, true);
  CAPTURE(pipelined);
  Builder k("apart");
  auto x = k.input("x", DType::f32, {8, 64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  auto sum = k.var(DType::f32, 0.0f, "sum");
  const auto step = [&](Value s) {
    k.copy(x(s), tile);
    sum += tile(k.thread());
    k.break_if(sum > 10.0f);
  };
  if (pipelined) {
    k.pipelined(0, 8, 3, step);
  } else {
    k.serial(0, 8, step);
  }
  y(k.thread()) = sum;
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { codegen::lower(kernel); });
  CAPTURE(text);
  CHECK(text.find(pipelined ? "the condition of the break done_value"
                            : "threads may leave a loop in different rounds") != std::string::npos);
  CHECK(text.find("[SYNC_DIVERGENT]") != std::string::npos);
}

TEST_CASE("loops that end early compile for every target", "[language][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const bool by_bulk : {false, true}) {
      const ir::Kernel kernel = sum_until_negative({.by_bulk = by_bulk});
      const std::string text =
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
      const Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(target, by_bulk, compiled.log);
      CHECK(compiled.ok);
    }
  }
}
