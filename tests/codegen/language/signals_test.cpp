// Blocks of a grid that wait for each other's signals.

#include <string>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
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

struct Chain {
  bool waits = true;     // before it reads what its neighbour wrote
  bool descends = true;  // block b waits for block b + 1
  int64_t dtype_of_cells = 0;
};

/// total[b] = the sum of x[0 .. b], each block adding its own 64 elements to the total of its neighbour.
ir::Kernel chained_sum(const Chain& options) {
  Builder k("chained_sum");
  auto blocks = k.dim("blocks");
  auto x = k.input("x", DType::i32, {blocks, 64});
  auto total = k.output("total", DType::i32, {blocks});
  auto ready = k.output("ready", options.dtype_of_cells == 0 ? DType::i32 : DType::u32, {blocks});
  const dsl::BlockIndex at = k.launch({blocks}, {.threads = 64});
  const Value place = k.let("place", options.descends ? blocks - 1 - at.x : at.x);
  auto sums = k.shared(DType::i32, {2}, "sums");
  const Value own = k.warp_sum(x(place, k.thread()));
  k.if_(k.lane() == 0, [&] { sums(k.warp()) = own; });
  k.if_(place > 0, [&] {
    if (options.waits) k.wait_until(ready(place - 1), 1);
    k.if_(k.thread() == 63, [&] { total(place) = total(place - 1) + sums(0) + sums(1); });
  });
  k.if_(place == 0, [&] { k.if_(k.thread() == 63, [&] { total(place) = sums(0) + sums(1); }); });
  k.signal(ready(place), 1);
  return k.finish();
}

std::string run_chain(const Chain& options, int64_t blocks) {
  const HostTensor x = iota(DType::i32, {blocks, 64});
  const HostTensor total(DType::i32, {blocks});
  const HostTensor ready = tensor_by(options.dtype_of_cells == 0 ? DType::i32 : DType::u32,
                                     {blocks}, [](int64_t) { return 0; });
  const std::string error = error_of([&] {
    run_kernel(chained_sum(options), {&x, &total, &ready});
  });
  if (error.empty()) {
    CHECK_THAT(total, HasValues([](int64_t b) {
                 const int64_t count = (b + 1) * 64;
                 return count * (count - 1) / 2;
               }));
    CHECK_THAT(ready, HasValues([](int64_t) { return 1; }));
  }
  return error;
}

/// `body` in a kernel of `blocks` blocks of 64 threads with a tensor of data and one of cells.
template <class Fn>
ir::Kernel with_cells(const Fn& body, int64_t blocks = 4) {
  Builder k("cells");
  auto y = k.output("y", DType::i32, {4, 64});
  auto cells = k.output("cells", DType::i32, {4});
  const dsl::BlockIndex at = k.launch({blocks}, {.threads = 64});
  body(k, at.x, y, cells);
  return k.finish();
}

std::string trap_of(const ir::Kernel& kernel) {
  const HostTensor y = tensor_by(DType::i32, {4, 64}, [](int64_t) { return 0; });
  const HostTensor cells = tensor_by(DType::i32, {4}, [](int64_t) { return 0; });
  return error_of([&] { run_on_executor(kernel, {y.view(), cells.view()}); });
}

}  // namespace

TEST_CASE("each block adds to what its neighbour has signalled", "[language][grid]") {
  const bool descends = GENERATE(false, true);  // waits go to lower or to higher blocks
  const int64_t dtype = GENERATE(0, 1);
  const int64_t blocks = GENERATE(1, 2, 37);
  CAPTURE(descends, dtype, blocks);
  CHECK(run_chain({.descends = descends, .dtype_of_cells = dtype}, blocks).empty());
}

TEST_CASE("what a block reads before the signal is a race", "[language][grid]") {
  const std::string error = run_chain({.waits = false, .descends = false}, 5);
  CAPTURE(error);
  CHECK(error.find("race on total[0]: written by block (0, 0, 0) and read by block (1, 0, 0)") !=
        std::string::npos);
  CHECK(error.find("[RACE]") != std::string::npos);
}

TEST_CASE("a signal covers what was written before it, not what comes after", "[language][grid]") {
  const bool before = GENERATE(true, false);
  CAPTURE(before);
  const std::string error = trap_of(with_cells([&](Builder& k, Value b, Ref& y, Ref& cells) {
    k.if_else(
        b == 0,
        [&] {
          if (before) y(0, k.thread()) = 7;
          k.signal(cells(0), 1);
          if (!before) y(0, k.thread()) = 7;
        },
        [&] {
          k.wait_until(cells(0), 1);
          y(b, k.thread()) = y(0, 63 - k.thread()) + 1;
        });
  }));
  CAPTURE(error);
  CHECK(error.empty() == before);
  if (!before) CHECK(error.find("race on y[0, ") != std::string::npos);
}

TEST_CASE("a block waits until all others have been counted, then resets the cell",
          "[language][grid]") {
  const int64_t rounds = 3;
  Builder k("gather");
  auto parts = k.output("parts", DType::i32, {8, 64});
  auto cells = k.output("cells", DType::i32, {1});
  auto y = k.output("y", DType::i32, {rounds, 64});
  const dsl::BlockIndex at = k.launch({8}, {.threads = 64});
  const Value t = k.let("t", k.thread());
  k.serial(0, rounds, [&](Value round) {
    parts(at.x, t) = at.x * 100 + t + round;
    k.signal_add(cells(0), 1);
    // The first block adds up and lets the others go on.
    k.if_else(
        at.x == 0,
        [&] {
          k.wait_until(cells(0), [&](Value now) { return now % 16 == 8; });
          auto sum = k.var(DType::i32, 0, "sum");
          k.serial(0, 8, [&](Value b) { sum += parts(b, t); });
          y(round, t) = sum;
          k.signal_add(cells(0), 8);
        },
        [&] { k.wait_until(cells(0), [&](Value now) { return now >= round * 16 + 16; }); });
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor parts_left(DType::i32, {8, 64});
  const HostTensor counts = tensor_by(DType::i32, {1}, [](int64_t) { return 0; });
  const HostTensor result(DType::i32, {rounds, 64});
  run_kernel(kernel, {&parts_left, &counts, &result});
  CHECK(counts.value(0) == 16 * rounds);
  CHECK_THAT(result, HasValues([](int64_t i) { return 2800 + 8 * (i % 64 + i / 64); }));
}

TEST_CASE("blocks that wait without end are named with their lines", "[language][grid]") {
  const std::string circle = trap_of(with_cells([](Builder& k, Value b, Ref& y, Ref& cells) {
    k.if_else(
        b % 2 == 0, [&] { k.wait_until(cells(b + 1), 1); },
        [&] { k.wait_until(cells(b - 1), [](Value now) { return now == 1; }); });
    y(b, k.thread()) = 1;
    k.signal(cells(b), 1);
  }));
  CAPTURE(circle);
  CHECK(circle.find("[DEADLOCK]") != std::string::npos);
  CHECK(circle.find("no block of the grid can go on: block (0, 0, 0) waits for cells[1]") !=
        std::string::npos);
  CHECK(circle.find("block (1, 0, 0) waits for cells[0]") != std::string::npos);
  CHECK(circle.find("block (3, 0, 0) waits for cells[2]") != std::string::npos);
  CHECK(count(circle, "signals_test.cpp:") >= 4);
  // One waits for a signal that nobody sends, the others wait for it at a barrier of the grid.
  const std::string barrier = trap_of(with_cells([](Builder& k, Value b, Ref& y, Ref& cells) {
    k.if_(b == 2, [&] { k.wait_until(cells(3), 5); });
    k.sync_grid();
    y(b, k.thread()) = 1;
  }));
  CAPTURE(barrier);
  CHECK(barrier.find("block (2, 0, 0) waits for cells[3]") != std::string::npos);
  CHECK(barrier.find("3 at a grid barrier") != std::string::npos);
  const std::string ended = trap_of(with_cells(
      [](Builder& k, Value b, Ref& y, Ref& cells) {
        k.if_(b == 2, [&] { k.wait_until(cells(3), 5); });
        y(b, k.thread()) = 1;
      },
      3));
  CHECK(ended.find("2 at the end") != std::string::npos);
}

TEST_CASE("signals and barriers of the grid go together", "[language][grid]") {
  const ir::Kernel kernel = with_cells([](Builder& k, Value b, Ref& y, Ref& cells) {
    y(b, k.thread()) = b;
    k.sync_grid();
    k.if_(b < 3, [&] { k.wait_until(cells(b + 1), 1); });
    k.if_(b < 3, [&] { y(b, k.thread()) = y(b, k.thread()) + y(b + 1, k.thread()); });
    k.signal(cells(b), 1);
    k.sync_grid();
    k.if_(b == 3, [&] { y(b, k.thread()) = y(0, k.thread()); });
  });
  const HostTensor y = tensor_by(DType::i32, {4, 64}, [](int64_t) { return 0; });
  const HostTensor cells = tensor_by(DType::i32, {4}, [](int64_t) { return 0; });
  run_kernel(kernel, {&y, &cells});
  CHECK_THAT(y, HasValues([](int64_t i) {
               constexpr int64_t want[] = {6, 6, 5, 6};
               return want[i / 64];
             }));
}

TEST_CASE("a cell outside of its tensor is not awaited", "[language][grid]") {
  const ir::Kernel kernel = with_cells([](Builder& k, Value b, Ref& y, Ref& cells) {
    k.wait_until(cells(b - 1), 1);
    y(b, k.thread()) = 1;
    k.signal(cells(b), 1);
  });
  const HostTensor y = tensor_by(DType::i32, {4, 64}, [](int64_t) { return 0; });
  const HostTensor cells = tensor_by(DType::i32, {4}, [](int64_t) { return 0; });
  run_kernel(kernel, {&y, &cells});
  CHECK_THAT(cells, HasValues([](int64_t) { return 1; }));
}

TEST_CASE("a pipelined loop does not copy ahead what another block still writes",
          "[language][grid][pipeline]") {
  // Two blocks: the first fills row after row, the second adds them up as they come.
  constexpr int64_t kRows = 6;
  Builder k("stream");
  auto rows = k.output("rows", DType::f32, {kRows, 128});
  auto cells = k.output("cells", DType::i32, {1});
  auto y = k.output("y", DType::f32, {128});
  const dsl::BlockIndex at = k.launch({2}, {.threads = 128});
  const Value t = k.let("t", k.thread());
  k.if_else(
      at.x == 1,
      [&] {
        k.serial(0, kRows, [&](Value r) {
          rows(r, t) = cast(DType::f32, r * 1000 + t);
          k.signal(cells(0), r + 1);
        });
      },
      [&] {
        auto tile = k.shared(DType::f32, {128}, "tile");
        auto sum = k.var(DType::f32, 0.0f, "sum");
        k.pipelined(0, kRows, 3, [&](Value r) {
          k.wait_until(cells(0), [&](Value now) { return now > r; });
          k.copy(rows(r), tile);
          sum += tile(t);
        });
        y(t) = sum;
      });
  const ir::Kernel kernel = k.finish();
  const HostTensor filled(DType::f32, {kRows, 128});
  const HostTensor counts = tensor_by(DType::i32, {1}, [](int64_t) { return 0; });
  const HostTensor result(DType::f32, {128});
  run_kernel(kernel, {&filled, &counts, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return 15000 + 6 * i; }));
  CHECK(codegen::to_string(codegen::lower(kernel)).find("async copy") == std::string::npos);
}

TEST_CASE("signals stand where the whole block comes, on cells that all blocks see",
          "[language][grid]") {
  const auto refused = [](const auto& body) {
    return error_of([&] { codegen::lower(with_cells(body)); });
  };
  const auto has = [](const std::string& error, const char* text) {
    CAPTURE(error, text);
    CHECK(error.find(text) != std::string::npos);
  };
  has(refused([](Builder& k, Value, Ref&, Ref& cells) {
        k.if_(k.thread() == 3, [&] { k.signal(cells(0), 1); });
      }),
      "signal where not all threads of the block come together [SYNC_DIVERGENT]");
  has(refused([](Builder& k, Value, Ref&, Ref& cells) {
        k.parallel({64}, [&](Value) { k.signal_add(cells(0), 1); });
      }),
      "signal_add where not all threads of the block come together [SYNC_DIVERGENT]");
  has(refused([](Builder& k, Value, Ref&, Ref& cells) { k.wait_until(cells(k.lane()), 1); }),
      "wait_until on a cell that depends on the thread index [SYNC_DIVERGENT]");
  has(refused([](Builder& k, Value, Ref&, Ref& cells) {
        k.wait_until(cells(0), [&](Value now) { return now > k.thread(); });
      }),
      "the condition of wait_until depends on the thread index [SYNC_DIVERGENT]");
  has(refused([](Builder& k, Value, Ref& y, Ref& cells) {
        k.wait_until(cells(0), [&](Value now) { return now > y(0, 0); });
      }),
      "the condition of wait_until records statements [WAIT_CONDITION]");
  has(refused([](Builder& k, Value, Ref&, Ref&) {
        auto mine = k.shared(DType::i32, {1}, "mine");
        k.wait_until(mine(0), 1);
      }),
      "wait_until on 'mine', which other blocks cannot see [ATOMIC]");
  has(refused([](Builder& k, Value b, Ref&, Ref& cells) {
        k.signal(cells, 1);
        k.signal(cells(b), 1);
      }),
      "signal of 'cells' is not on one element [NOT_AN_ELEMENT]");
  const std::string in_role = error_of([] {
    Builder k("in_role");
    auto cells = k.output("cells", DType::i32, {4});
    k.launch({4}, {.threads = 64});
    const auto by_lane = [&] { k.if_(k.lane() == 0, [&] { k.signal(cells(0), 1); }); };
    k.roles({{.name = "one", .warps = 1, .body = by_lane},
             {.name = "other", .warps = 1, .body = [&] {}}});
  });
  has(in_role, "signal where not all threads of the role come together [SYNC_DIVERGENT]");
  const std::string by_float = error_of([] {
    Builder k("by_float");
    auto x = k.input("x", DType::i32, {4});
    auto y = k.output("y", DType::f32, {4});
    k.launch({4}, {.threads = 64});
    const bool of_input = GENERATE(false, true);
    k.wait_until(of_input ? x(0) : y(0), 1);
  });
  CHECK((by_float.find("there is no wait_until on 'y' [DTYPE]") != std::string::npos ||
         by_float.find("wait_until writes the input tensor 'x' [WRITE_READ_ONLY]") !=
             std::string::npos));
}

TEST_CASE("a wait is one thread's acquiring loads before a barrier, launched cooperatively",
          "[language][grid]") {
  const ir::Kernel kernel = chained_sum({});
  const KernelSource source = codegen::cuda::emit(codegen::lower(kernel));
  CHECK(source.cooperative);
  const std::string text = cuda_text(kernel);
  CAPTURE(text);
  CHECK(count(text, "= atomic_load_i32(") == 1);
  CHECK(count(text, "atomicExch(") == 1);
  CHECK(count(text, "for (;;) {") == 1);
  // Any value that loads find may end the wait: it is not computed before.
  CHECK(text.find("for (;;) {") < text.find("= atomic_load_i32("));
}

TEST_CASE("signals compile for every target", "[language][grid][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const int64_t dtype : {0, 1}) {
      const ir::Kernel kernel = chained_sum({.dtype_of_cells = dtype});
      const std::string text =
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
      const Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(target, compiled.log);
      CHECK(compiled.ok);
    }
  }
}
