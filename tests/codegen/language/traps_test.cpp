// Planted bugs: the checked executor names each with the line where the author wrote it.

#include "codegen/cpu/executor.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

struct Trap {
  std::string code, text;
  int line = 0;
};

Trap trap_of(const ir::Kernel& kernel, const std::vector<const HostTensor*>& tensors) {
  try {
    run_kernel(kernel, tensors);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::trap);
    return {error.code(), error.what(), error.loc().line};
  }
  return {};
}

}  // namespace

TEST_CASE("a planted store out of bounds is reported at its line", "[language][traps]") {
  Builder k("planted_oob");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  k.launch({1}, {.threads = 32});
  const int line = __LINE__ + 1;
  y.unchecked()(k.thread() + 1) = 7;
  const HostTensor out(DType::i32, {32});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "OOB");
  CHECK(trap.line == line);
  CHECK(trap.text.find("y[32] is out of bounds") != std::string::npos);
  CHECK(trap.text.find("traps_test.cpp") != std::string::npos);
}

TEST_CASE("a planted shared index out of bounds is reported at its line", "[language][traps]") {
  Builder k("planted_shared_oob");
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto s = k.shared(DType::i32, {16}, "s");
  const int line = __LINE__ + 1;
  s(k.let("at", k.thread())) = 1;
  y(k.thread()) = s(k.thread() / 2);
  const HostTensor out(DType::i32, {32});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "OOB");
  CHECK(trap.line == line);
}

TEST_CASE("a planted race is reported with both lines", "[language][traps]") {
  Builder k("planted_race");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {1}, "s");
  const int line = __LINE__ + 1;
  s(k.thread() / 64) = k.thread();  // all threads write element 0
  y(k.thread()) = s(0);
  const HostTensor out(DType::i32, {64});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "RACE");
  CHECK(trap.line == line);
}

TEST_CASE("a planted read of what nobody wrote is reported at its line", "[language][traps]") {
  Builder k("planted_uninitialised");
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto s = k.shared(DType::i32, {64}, "s");
  s(k.thread()) = 1;
  k.sync();
  const int line = __LINE__ + 1;
  y(k.thread()) = s(k.thread() + 32);
  const HostTensor out(DType::i32, {32});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "UNINITIALISED");
  CHECK(trap.line == line);
}

TEST_CASE("a register that nobody wrote is reported", "[language][traps]") {
  Builder k("planted_register");
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto own = k.local(DType::i32, {2}, "own");
  own(0) = 1;
  const int line = __LINE__ + 1;
  y(k.thread()) = own(1);
  const HostTensor out(DType::i32, {32});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "UNINITIALISED");
  CHECK(trap.line == line);
}

TEST_CASE("a planted barrier in divergent code is reported at its line", "[language][traps]") {
  Builder k("planted_divergence");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  int line = 0;
  k.if_(k.thread() < 40, [&] {
    line = __LINE__ + 1;
    k.sync();
  });
  y(k.thread()) = 1;
  const HostTensor out(DType::i32, {64});
  const Trap trap = trap_of(k.finish(), {&out});
  CHECK(trap.code == "DIVERGENT_BARRIER");
  CHECK(trap.line == line);
}

TEST_CASE("threads of a block that race on a global tensor are reported", "[language][traps]") {
  // Each warp takes what the other one overwrites.
  int line = 0;
  const auto reversed_in_place = [&](bool sync) {
    Builder k("reverse");
    auto x = k.output("x", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto other = k.let("other", x(63 - k.thread()));
    if (sync) k.sync();
    line = __LINE__ + 1;
    x(k.thread()) = other;
    return k.finish();
  };
  const HostTensor x = iota(DType::i32, {64});
  const Trap trap = trap_of(reversed_in_place(false), {&x});
  CHECK(trap.code == "RACE");
  CHECK(trap.line == line);
  CHECK(trap.text.find("race on x[0]: written here and read by thread 63 with no barrier between "
                       "(thread 0, block (0, 0, 0))") != std::string::npos);
  const HostTensor fresh = iota(DType::i32, {64});
  run_kernel(reversed_in_place(true), {&fresh});
  CHECK_THAT(fresh, HasValues([](int64_t e) { return 63 - e; }));
}

TEST_CASE("a race between copies of one iteration says that they are copies", "[language][traps]") {
  const auto program = [](bool sync) {
    Builder k("copies_race");
    auto x = k.output("x", DType::i32, {32});
    k.launch({1}, {.threads = 64});
    auto f = k.fragment(DType::i32, {32}, "f");
    k.copy(x, f);  // each element in two threads
    if (sync) k.sync();
    k.parallel({32}, [&](Value i) { x(i) = f(i) + 1; });
    return k.finish();
  };
  const HostTensor x = iota(DType::i32, {32});
  const Trap trap = trap_of(program(false), {&x});
  CHECK(trap.code == "RACE");
  CHECK(trap.text.find("hint      put k.sync() between the two; a parallel loop or copy of fewer "
                       "elements than threads reads each of them in several threads") !=
        std::string::npos);
  const HostTensor fresh = iota(DType::i32, {32});
  run_kernel(program(true), {&fresh});
  CHECK_THAT(fresh, HasValues([](int64_t i) { return i + 1; }));
}

TEST_CASE("a copy into shared memory races with who wrote its source", "[language][traps]") {
  const bool in_background = GENERATE(false, true);
  const auto shifted = [&](bool sync) {
    Builder k("shift");
    auto x = k.output("x", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    x(63 - k.thread()) = k.thread();
    if (sync) k.sync();
    if (in_background) {
      k.wait(k.copy_async(x.tile({0}, {64}), s));
    } else {
      k.copy(x.tile({0}, {64}), s);
    }
    x(k.thread()) = s((k.thread() + 1) % 64);
    return k.finish();
  };
  const HostTensor x(DType::i32, {64});
  CHECK(trap_of(shifted(false), {&x}).code == "RACE");
  run_kernel(shifted(true), {&x});
  CHECK_THAT(x, HasValues([](int64_t e) { return 63 - (e + 1) % 64; }));
}

TEST_CASE("a plain read races with another thread's atomic", "[language][traps]") {
  const auto counted = [&](bool sync) {
    Builder k("counted");
    auto count = k.output("count", DType::i32, {1});
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    k.atomic_add(count(0), 1);
    if (sync) k.sync();
    y(k.thread()) = count(0);
    return k.finish();
  };
  const HostTensor count = iota(DType::i32, {1}), y(DType::i32, {64});
  CHECK(trap_of(counted(false), {&count, &y})
            .text.find("race on count[0]: read here and changed atomically by thread ") !=
        std::string::npos);
  const HostTensor from_zero = iota(DType::i32, {1});
  run_kernel(counted(true), {&from_zero, &y});
  CHECK_THAT(y, HasValues([](int64_t) { return 64; }));
}

TEST_CASE("what a thread does with its own global elements is no race", "[language][traps]") {
  Builder k("own");
  auto x = k.output("x", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  k.serial(0, 3, [&](Value) { x(k.thread()) = x(k.thread()) + 1; });
  const HostTensor counted = iota(DType::i32, {64});
  run_kernel(k.finish(), {&counted});
  CHECK_THAT(counted, HasValues([](int64_t e) { return e + 3; }));
}

TEST_CASE("blocks that write the same element are reported with both of them",
          "[language][traps]") {
  Builder k("everybody");
  auto y = k.output("y", DType::i32, {2, 64});
  auto at = k.launch({3, 2}, {.threads = 64});
  const int line = __LINE__ + 1;
  y(at.y, k.thread()) = 7;
  const ir::Kernel kernel = k.finish();
  for (int i = 0; i < 20; ++i) {
    const HostTensor out(DType::i32, {2, 64});
    const Trap trap = trap_of(kernel, {&out});
    CHECK(trap.code == "RACE");
    CHECK(trap.line == line);
    CHECK(trap.text.find("race on y[0, 0]: written by block (2, 0, 0) and written by block "
                         "(0, 0, 0) with no barrier of the grid between") != std::string::npos);
  }
}

TEST_CASE("a block that reads what its neighbour writes is reported", "[language][traps]") {
  const bool in_background = GENERATE(false, true);
  int line = 0;
  const auto moved = [&](int blocks_away) {
    Builder k("moved");
    auto x = k.output("x", DType::i32, {4, 64});
    auto at = k.launch({4}, {.threads = 64});
    auto s = k.shared(DType::i32, {1, 64}, "s");
    const auto from = x.tile({(at.x + blocks_away) % 4, 0}, {1, 64});
    if (in_background) {
      k.wait(k.copy_async(from, s));
    } else {
      k.copy(from, s);
    }
    k.sync();
    line = __LINE__ + 1;
    x(at.x, k.thread()) = s(0, 63 - k.thread());
    return k.finish();
  };
  const HostTensor x = iota(DType::i32, {4, 64});
  const Trap trap = trap_of(moved(1), {&x});
  CHECK(trap.code == "RACE");
  CHECK(trap.line == line);
  CHECK(trap.text.find("race on x[0, 0]: written by block (0, 0, 0) and read by block (3, 0, 0) "
                       "with no barrier of the grid between") != std::string::npos);
  const HostTensor fresh = iota(DType::i32, {4, 64});
  run_kernel(moved(0), {&fresh});
  CHECK_THAT(fresh, HasValues([](int64_t e) { return e / 64 * 64 + 63 - e % 64; }));
}

TEST_CASE("a plain read races with another block's atomic", "[language][traps]") {
  const auto counted = [&](bool reads) {
    Builder k("counted_by_all");
    auto count = k.output("count", DType::i32, {1});
    auto y = k.output("y", DType::i32, {4});
    auto at = k.launch({4}, {.threads = 32});
    k.atomic_add(count(0), 1);
    k.sync();
    k.if_(k.thread() == 0, [&] {
      if (reads) {
        y(at.x) = count(0);
      } else {
        y(at.x) = 1;
      }
    });
    return k.finish();
  };
  const HostTensor count = iota(DType::i32, {1}), y(DType::i32, {4});
  CHECK(trap_of(counted(true), {&count, &y})
            .text.find("race on count[0]: changed atomically by block (3, 0, 0) and read by block "
                       "(0, 0, 0) with no barrier of the grid between") != std::string::npos);
  const HostTensor from_zero = iota(DType::i32, {1});
  run_kernel(counted(false), {&from_zero, &y});
  CHECK_THAT(from_zero, HasValues([](int64_t) { return 128; }));
}
