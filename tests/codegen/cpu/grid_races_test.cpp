// Races between the blocks of a grid, and what keeps the record of them.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cpu/races/grid_shadow.h"
#include "dsl/base/error.h"
#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

using ir::Op;

constexpr int kBlocks = 4, kThreads = 32;

/// The trap of the run; without one, an error with an empty text.
struct Result {
  std::string code, text, argument;
  int line = 0, related_line = 0;
};

/// By one worker: what the blocks of these kernels do to each other, its threads would do as well.
Result run(const ThreadKernel& k, const std::vector<Argument>& arguments) {
  Options options;
  options.traps = true;
  options.workers = 1;
  try {
    k.run(arguments, options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::trap);
    return {error.code(), error.fields().what, error.argument(), error.loc().line,
            error.fields().related.line};
  }
  return {};
}

/// y[own] = x[own + away] in blocks of kThreads, own wrapping at the end.
struct Shift {
  ThreadKernel k{kThreads, {integer(kBlocks)}};
  int load_line = 0, store_line = 0;

  Shift(int64_t away, int64_t x_size, int64_t y_size) {
    const ArrayRef x = k.tensor("x", DType::f32, {integer(x_size)}, true);
    const ArrayRef y = k.tensor("y", DType::f32, {integer(y_size)});
    const Expr own = k.block(0) * integer(kThreads) + k.thread();
    const Expr from = ir::binary(Op::mod, own + integer(away), integer(kBlocks * kThreads));
    const Expr value = k.load(x, {from});
    load_line = __LINE__ - 1;
    k.store(y, {own}, value);
    store_line = __LINE__ - 1;
  }
};

}  // namespace

TEST_CASE("RACE: a block writes what another one reads through another parameter", "[cpu][traps]") {
  std::vector<float> data(kBlocks * kThreads), other(kBlocks * kThreads);
  const Shift shift(kThreads, kBlocks * kThreads, kBlocks * kThreads);
  const Argument x = argument(data, DType::f32);
  CHECK(run(shift.k, {x, argument(other, DType::f32)}).code.empty());
  const Result trap = run(shift.k, {x, x});
  CHECK(trap.code == "RACE");
  CHECK(
      trap.text ==
      "race on x[0]: written by block (0, 0, 0) and read by block (3, 0, 0) with no barrier of the "
      "grid between");
  CHECK(trap.argument == "x");
  CHECK(trap.line == shift.store_line);
  CHECK(trap.related_line == shift.load_line);
  const Shift in_place(0, kBlocks * kThreads, kBlocks * kThreads);
  CHECK(run(in_place.k, {x, x}).code.empty());
}

TEST_CASE("RACE: tensors that overlap in part, whichever comes first in memory", "[cpu][traps]") {
  const int64_t size = kBlocks * kThreads;
  std::vector<float> data(static_cast<size_t>(size) + 40);
  const auto at = [&](size_t first) {
    Argument a;
    a.tensor = TensorView(data.data() + first, DType::f32, Dims{size});
    return a;
  };
  const Shift same(0, size, size);
  const Result y_behind = run(same.k, {at(0), at(40)});
  CHECK(y_behind.text ==
        "race on x[40]: written by block (0, 0, 0) and read by block (1, 0, 0) with no barrier of "
        "the "
        "grid between");
  const Result y_before = run(same.k, {at(40), at(0)});
  CHECK(
      y_before.text ==
      "race on x[0]: written by block (1, 0, 0) and read by block (0, 0, 0) with no barrier of the "
      "grid between");
}

TEST_CASE("RACE: of many blocks that write an element, the first and the last are named",
          "[cpu][traps]") {
  ThreadKernel k(kThreads, {integer(8), integer(8)});
  const ArrayRef y = k.tensor("y", DType::i32, {integer(8), integer(kThreads)});
  k.store(y, {k.block(0), k.thread()}, k.thread());
  std::vector<int32_t> data(8 * kThreads);
  Argument rows = argument(data, DType::i32);
  rows.tensor = TensorView(data.data(), DType::i32, Dims{8, kThreads});
  CHECK(
      run(k, {rows}).text ==
      "race on y[0, 0]: written by block (0, 7, 0) and written by block (0, 0, 0) with no barrier "
      "of the grid between");
}

TEST_CASE("RACE: a trap of a block comes first", "[cpu][traps]") {
  ThreadKernel k(kThreads, {integer(kBlocks)});
  const ArrayRef y = k.tensor("y", DType::i32, {integer(kThreads)});
  k.store(y, {k.thread() + k.block(0)}, k.thread());
  std::vector<int32_t> data(kThreads);
  CHECK(run(k, {argument(data, DType::i32)}).text ==
        "y[32] is out of bounds: extent 32 (thread 31, block (1, 0, 0))");
}

TEST_CASE("blocks of one cluster are ordered by its own barriers", "[cpu][traps]") {
  const int cluster = GENERATE(1, 2, 4);
  ThreadKernel k(kThreads, {integer(kBlocks)});
  k.program().cluster = cluster;
  const ArrayRef y = k.tensor("y", DType::i32, {integer(2), integer(kThreads)});
  k.store(y, {k.block(0) / integer(2), k.thread()}, k.thread());
  std::vector<int32_t> data(2 * kThreads);
  const Result trap = run(k, {argument(data, DType::i32)});
  CHECK(trap.code == (cluster == 1 ? "RACE" : ""));
}

TEST_CASE("what a grid shadow finds does not depend on the order of the touches", "[cpu][traps]") {
  struct Touch {
    Way way;
    int64_t block;
    int32_t statement;
  };
  using Touches = std::array<Touch, 4>;
  const auto found = [](const Touches& touches, int cluster) {
    std::array<std::byte, 64> memory{};
    GridShadow shadow({{memory.data(), 64, 4, Ways{{true, true, true}}}}, cluster);
    for (const Touch& t : touches) shadow.note(0, 8, 4, t.way, t.block, t.statement);
    const auto conflict = shadow.find();
    shadow.clear();
    CHECK(!shadow.find());
    return conflict;
  };
  const auto check = [&](Touches touches, const char* want, int cluster = 1) {
    std::array<int, 4> order{0, 1, 2, 3};
    do {
      Touches turned{};
      for (size_t i = 0; i < order.size(); ++i) {
        turned[i] = touches[static_cast<size_t>(order[i])];
      }
      const auto conflict = found(turned, cluster);
      std::string text = "none";
      if (conflict) {
        CHECK(conflict->byte == 8);
        const auto touch = [](const GridConflict::Touch& t) {
          return std::string(name(t.way)) + " " + std::to_string(t.block) + ":" +
                 std::to_string(t.statement);
        };
        text = touch(conflict->one) + ", " + touch(conflict->other);
      }
      CHECK(text == want);
    } while (std::next_permutation(order.begin(), order.end()));
  };
  const Way read = Way::read, written = Way::written, changed = Way::changed;
  check({{{read, 1, 5}, {read, 2, 5}, {read, 3, 6}, {read, 0, 7}}}, "none");
  check({{{changed, 1, 5}, {changed, 2, 5}, {changed, 3, 6}, {changed, 0, 7}}}, "none");
  check({{{read, 2, 5}, {written, 2, 6}, {changed, 2, 7}, {written, 2, 9}}}, "none");
  check({{{written, 3, 5}, {written, 1, 6}, {written, 2, 7}, {read, 0, 8}}},
        "written 3:5, written 1:6");
  check({{{written, 2, 5}, {written, 2, 9}, {read, 2, 7}, {read, 4, 8}}}, "written 2:5, read 4:8");
  check({{{written, 2, 5}, {written, 2, 9}, {read, 2, 7}, {read, 0, 8}}}, "written 2:9, read 0:8");
  check({{{changed, 2, 5}, {changed, 1, 9}, {read, 2, 7}, {changed, 4, 8}}},
        "changed atomically 4:8, read 2:7");
  check({{{written, 1, 5}, {changed, 0, 9}, {changed, 1, 7}, {changed, 1, 8}}},
        "written 1:5, changed atomically 0:9");
  check({{{written, 2, 5}, {read, 3, 9}, {written, 2, 7}, {written, 3, 8}}}, "none", 2);
  check({{{written, 2, 5}, {read, 3, 9}, {read, 1, 7}, {written, 3, 8}}}, "written 3:8, read 1:7",
        2);
}

TEST_CASE("what a grid shadow finds does not depend on the threads that note it", "[cpu][traps]") {
  constexpr int kThreadsNoting = 4;
  constexpr int64_t kBytes = 16384;  // four pages
  std::vector<std::byte> memory(static_cast<size_t>(kBytes));
  for (int i = 0; i < 20; ++i) {
    GridShadow shadow({{memory.data(), kBytes, 4, Ways{{true, true, false}}}}, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreadsNoting; ++t) {
      threads.emplace_back([&shadow, t] {
        for (int64_t byte = 0; byte < kBytes; byte += 4) {
          shadow.note(0, byte, 4, Way::read, 7, t);
          if (byte >= 8192) shadow.note(0, byte, 4, Way::written, t, 10 + t);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto conflict = shadow.find();
    REQUIRE(conflict);
    CHECK(conflict->byte == 8192);
    CHECK(conflict->one.block == kThreadsNoting - 1);
    CHECK(conflict->one.statement == 10 + kThreadsNoting - 1);
    CHECK(conflict->other.way == Way::written);
    CHECK(conflict->other.block == 0);
  }
}

TEST_CASE("elements of one byte are told apart", "[cpu][traps]") {
  std::array<std::byte, 4096> memory{};
  GridShadow shadow({{memory.data(), 4096, 1, Ways{{false, true, false}}}}, 1);
  for (int64_t byte = 0; byte < 4096; ++byte) shadow.note(0, byte, 1, Way::written, byte, 1);
  CHECK(!shadow.find());
  shadow.note(0, 3000, 1, Way::written, 0, 1);
  const auto conflict = shadow.find();
  REQUIRE(conflict);
  CHECK(conflict->byte == 3000);
}

TEST_CASE("RACE: every element of a vector counts", "[cpu][traps]") {
  const int64_t column = GENERATE(3, 4);
  ThreadKernel k(kThreads, {integer(2)});
  const ArrayRef y = k.tensor("y", DType::f32, {integer(8)});
  const ArrayRef four = k.registers("four", DType::f32, 4, /*zero=*/true);
  k.branch(less(k.thread(), integer(1)), [&] {
    k.branch(
        less(k.block(0), integer(1)), [&] { k.store_vector(y, {integer(0)}, 4, four); },
        [&] { k.store(y, {integer(column)}, number(1)); });
  });
  std::vector<float> data(8);
  const Result trap = run(k, {argument(data, DType::f32)});
  CAPTURE(trap.text);
  CHECK(trap.text.find("race on y[3]: ") == (column == 3 ? 0 : std::string::npos));
}

TEST_CASE("RACE: tensors of other element sizes at one place", "[cpu][traps]") {
  // Block 0 writes byte 5, block 1 byte 6 or the four bytes around.
  const bool as_float = GENERATE(false, true);
  ThreadKernel k(kThreads, {integer(2)});
  const ArrayRef floats = k.tensor("floats", DType::f32, {integer(4)});
  const ArrayRef bytes = k.tensor("bytes", DType::i8, {integer(16)});
  const Expr one = ir::constant(DType::i8, 1);
  k.branch(less(k.thread(), integer(1)), [&] {
    k.branch(
        less(k.block(0), integer(1)), [&] { k.store(bytes, {integer(5)}, one); },
        [&] {
          if (as_float) {
            k.store(floats, {integer(1)}, number(1));
          } else {
            k.store(bytes, {integer(6)}, one);
            k.store(floats, {integer(3)}, number(1));
          }
        });
  });
  std::vector<float> data(4);
  Argument as_bytes;
  as_bytes.tensor = TensorView(data.data(), DType::i8, Dims{16});
  const Result trap = run(k, {argument(data, DType::f32), as_bytes});
  CHECK(trap.text ==
        (as_float ? "race on byte 5 of floats: written by block (1, 0, 0) and written by block (0, "
                    "0, 0) with no barrier of the grid between"
                  : ""));
}

TEST_CASE("RACE: blocks that write the halves of a byte", "[cpu][traps]") {
  const int64_t apart = GENERATE(1, 2);
  ThreadKernel k(kThreads, {integer(2)});
  const ArrayRef x = k.tensor("x", DType::e2m1, {integer(4)}, true);
  const ArrayRef y = k.tensor("y", DType::e2m1, {integer(4)});
  k.branch(less(k.thread(), integer(1)),
           [&] { k.store(y, {k.block(0) * integer(apart)}, k.load(x, {integer(0)})); });
  std::vector<int8_t> in(2), out(2);
  const Result trap = run(k, {argument(in, DType::i8), argument(out, DType::i8)});
  CHECK(trap.text ==
        (apart == 1 ? "race on y[0]: written by block (1, 0, 0) and written by block (0, 0, 0) "
                      "with no barrier of the grid between"
                    : ""));
}

}  // namespace tessera::codegen::cpu
