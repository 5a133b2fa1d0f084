// Planted bugs: the checked executor names each with the line where the author wrote it.

#include "codegen/cpu/executor.h"
#include "tests/support/catch.h"
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
  s(k.thread()) = 1;
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
