// Threads of a block, or of a cluster, that write one element of global memory: the executor names both lines, also
// where the tensor is only written. They may write the same value.

#include <functional>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;

struct Race {
  std::string code, text;
  int line = 0, other = 0;
};

/// A kernel of one block with the output y f32 [4, 64], for the target.
Race race_of(const std::function<void(Builder&, Ref)>& body, int threads = 64,
             Target target = kSm90a) {
  Builder k("races");
  auto y = k.output("y", kF32, {4, 64});
  k.launch({1}, {.threads = threads});
  body(k, y);
  HostTensor out(kF32, {4, 64});
  std::vector<codegen::cpu::Argument> arguments(1);
  arguments[0].tensor = out.view();
  try {
    run_lowered(k.finish(), arguments, target);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::trap);
    return {error.code(), error.what(), error.loc().line, error.fields().related.line};
  }
  return {};
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("all threads of a block write one element of an output that nothing reads",
          "[language][traps]") {
  int line = 0;
  const Race race = race_of([&](Builder& k, const Ref& y) {
    line = __LINE__ + 1;
    y(2, 0) = f32(k.thread());
  });
  CHECK(race.code == "RACE");
  CHECK(race.line == line);
  CHECK(race.other == line);
  CHECK(has(race.text,
            "race on y[2, 0]: written here and written by thread 0 with no barrier between"));
  CHECK(has(race.text,
            "hint      let one thread write the element, or give it the same value in all; "
            "k.sync() orders two writes"));
}

TEST_CASE("two conditions of different threads write one element", "[language][traps]") {
  int first = 0, second = 0;
  const int of_another_warp = GENERATE(0, 1);
  const auto body = [&](bool sync) {
    return [&, sync](Builder& k, const Ref& y) {
      first = __LINE__ + 1;
      k.if_(k.thread() == 0, [&] { y(0, 0) = 1.0f; });
      if (sync) k.sync();
      second = __LINE__ + 1;
      k.if_(k.thread() == 1 + 32 * of_another_warp, [&] { y(0, 0) = 2.0f; });
    };
  };
  const Race race = race_of(body(false));
  CHECK(race.code == "RACE");
  CHECK(race.line == second);
  CHECK(race.other == first);
  CHECK(race_of(body(true)).code.empty());
}

TEST_CASE("iterations of a parallel loop write one element", "[language][traps]") {
  CHECK(race_of([](Builder& k, const Ref& y) {
          k.parallel({64}, [&](Value c) { y(0, c / 2) = f32(c); });
        }).code == "RACE");
}

TEST_CASE("a tile is stored, and other threads store elements of it", "[language][traps]") {
  const auto body = [](bool sync) {
    return [sync](Builder& k, const Ref& y) {
      auto f = k.fragment(kF32, {4, 64}, "f");
      k.fill(f, 1.0f);
      k.copy(f, y);
      if (sync) k.sync();
      k.parallel({64}, [&](Value i) { y(3, i) = f32(i); });
    };
  };
  CHECK(has(race_of(body(false)).text, "race on y[3, "));
  CHECK(race_of(body(true)).code.empty());
}

TEST_CASE("equal rows of a scatter race", "[language][traps]") {
  const bool is_shared = GENERATE(false, true), same_rows = GENERATE(false, true);
  Builder k("scatter");
  auto rows = k.input("rows", kI32, {8});
  auto y = k.output("y", kF32, {16, 64});
  k.launch({1}, {.threads = 64});
  auto f = is_shared ? k.shared(kF32, {8, 64}, "f") : k.fragment(kF32, {8, 64}, "f");
  k.parallel({8, 64}, [&](Value r, Value c) { f(r, c) = f32(r * 64 + c); });
  k.copy(f, y.rows(rows));
  const HostTensor index = iota(kI32, {8}), out(kF32, {16, 64});
  HostTensor equal = iota(kI32, {8});
  equal.set_value(5, 2);
  const std::string error = error_of([&] {
    run_kernel(k.finish(), {same_rows ? &equal : &index, &out});
  });
  CHECK(has(error, "race on y[2, ") == same_rows);
  CHECK(error.empty() == !same_rows);
}

TEST_CASE("threads that give an element one value do not race", "[language][traps]") {
  Builder k("same_value");
  auto y = k.output("y", kF32, {2});
  auto packed = k.output("packed", DType::bf16, {8});
  k.launch({1}, {.threads = 128});
  y(0) = 7.0f;  // by all threads
  k.if_(k.thread() >= 32, [&] { y(0) = 7.0f; });
  y(1) = f32(k.thread() / 128);
  k.serial(0, 8, [&](Value i) { packed(i) = cast(DType::bf16, i); });
  const HostTensor out(kF32, {2}), halves(DType::bf16, {8});
  run_kernel(k.finish(), {&out, &halves});
  CHECK_THAT(out, HasValues([](int64_t i) { return i == 0 ? 7 : 0; }));
  CHECK_THAT(halves, HasValues([](int64_t i) { return i; }));
}

TEST_CASE("another value races with each of several threads that gave one", "[language][traps]") {
  // The last of them is ordered before the other value, or writes it itself; the first is not.
  const int thread = GENERATE(0, 33, 40, 64);
  const Race race = race_of(
      [&](Builder& k, const Ref& y) {
        k.if_(k.thread() == 0, [&] { y(0, 0) = 1.0f; });
        k.if_(k.thread() == 40, [&] { y(0, 0) = 1.0f; });
        k.if_(k.thread() == 33, [&] { y(0, 0) = 1.0f; });
        k.if_(k.thread() == thread, [&] { y(0, 0) = 2.0f; });
      },
      96);
  CHECK(race.code == "RACE");
}

TEST_CASE("a barrier of a warp does not order writes of another one", "[language][traps]") {
  const auto body = [](int other) {
    return [other](Builder& k, const Ref& y) {
      k.if_(k.thread() == 0, [&] { y(0, 0) = 1.0f; });
      k.sync_warp();
      k.if_(k.thread() == other, [&] { y(0, 0) = 2.0f; });
    };
  };
  CHECK(race_of(body(1)).code.empty());
  CHECK(race_of(body(32)).code == "RACE");
}

TEST_CASE("a plain store races with another thread's atomic", "[language][traps]") {
  const bool atomic_first = GENERATE(false, true);
  const auto body = [=](bool sync) {
    return [=](Builder& k, const Ref& y) {
      const auto add = [&] { k.if_(k.thread() == 3, [&] { k.atomic_add(y(0, 0), 1.0f); }); };
      if (atomic_first) add();
      if (atomic_first && sync) k.sync();
      k.if_(k.thread() == 7, [&] { y(0, 0) = 1.0f; });
      if (!atomic_first && sync) k.sync();
      if (!atomic_first) add();
    };
  };
  CHECK(race_of(body(false)).code == "RACE");
  CHECK(race_of(body(true)).code.empty());
}

TEST_CASE("a tensor store races with a plain store of another thread", "[language][traps]") {
  const auto body = [](bool sync) {
    return [sync](Builder& k, const Ref& y) {
      auto s = k.shared(kF32, {4, 64}, "s");
      k.fill(s, 1.0f);
      k.wait(k.copy_async(s, y));
      if (sync) k.sync();
      k.if_(k.thread() == 40, [&] { y(1, 1) = 2.0f; });
    };
  };
  CHECK(has(race_of(body(false)).text, "race on y[1, 1]: written here and written by thread 0"));
  CHECK(race_of(body(true)).code.empty());
}

TEST_CASE("roles that write one element race", "[language][traps]") {
  const auto body = [](float value) {
    return [value](Builder& k, const Ref& y) {
      k.roles({{.name = "one", .warps = 1, .body = [&] { k.fill(y, 1.0f); }},
               {.name = "other", .warps = 1, .body = [&] { y(3, 63) = value; }}});
    };
  };
  CHECK(has(race_of(body(2)).text, "race on y[3, 63]"));
  CHECK(race_of(body(1)).code.empty());
}

TEST_CASE("a ring orders what two roles write", "[language][traps]") {
  // The role that takes overwrites what the one that fills has stored before its fill.
  const auto body = [](bool stores_first) {
    return [stores_first](Builder& k, const Ref& y) {
      auto ring = k.ring({.stages = 1});
      auto tile = ring.shared(kF32, {32}, "tile");
      const auto load = [&] {
        if (stores_first) k.fill(y.tile({0, 0}, {1, 64}), 1.0f);
        ring.fill([&] { k.fill(tile, 1.0f); });
        if (!stores_first) k.fill(y.tile({0, 0}, {1, 64}), 1.0f);
      };
      const auto take = [&] {
        ring.take([&] { k.parallel({32}, [&](Value c) { y(0, 63 - c) = tile(c) + 1.0f; }); });
      };
      k.roles(
          {{.name = "load", .warps = 1, .body = load}, {.name = "take", .warps = 1, .body = take}});
    };
  };
  CHECK(race_of(body(true)).code.empty());
  CHECK(race_of(body(false)).code == "RACE");
}

TEST_CASE("blocks of a cluster that write one element without their barrier race",
          "[language][traps]") {
  const auto kernel = [](bool sync) {
    Builder k("cluster_writes");
    auto y = k.output("y", kI32, {64});
    k.launch({2}, {.threads = 64, .cluster = 2});
    k.if_(k.cluster_rank() == 0, [&] { y(k.thread()) = 1; });
    if (sync) k.sync_cluster();
    k.if_(k.cluster_rank() == 1, [&] { y(63 - k.thread()) = 2; });
    return k.finish();
  };
  const HostTensor y(kI32, {64});
  CHECK(
      has(error_of([&] { run_kernel(kernel(false), {&y}); }),
          "race on y[63]: written here and written by thread 63 of block 0 of the cluster with no "
          "cluster barrier between"));
  run_kernel(kernel(true), {&y});
  CHECK_THAT(y, HasValues([](int64_t) { return 2; }));
}

TEST_CASE("signals order what two roles of a block write", "[language][traps]") {
  const auto kernel = [](bool waits) {
    Builder k("signalled_roles");
    auto y = k.output("y", kI32, {32});
    auto cells = k.output("cells", kI32, {1});
    k.launch({1}, {.threads = 64});
    k.roles({{.name = "one",
              .warps = 1,
              .body =
                  [&] {
                    y(k.thread()) = 1;
                    k.signal(cells(0), 1);
                  }},
             {.name = "other", .warps = 1, .body = [&] {
                if (waits) k.wait_until(cells(0), 1);
                y(31 - k.thread()) = 2;
              }}});
    return k.finish();
  };
  const auto run = [&](bool waits) {
    const HostTensor y(kI32, {32}), cells = iota(kI32, {1});
    return error_of([&] { run_kernel(kernel(waits), {&y, &cells}); });
  };
  CHECK(run(true).empty());
  CHECK(has(run(false), "[RACE]"));
}

TEST_CASE("threads that write one element of a tensor at an address race", "[language][traps]") {
  Builder k("at_address");
  auto table = k.input("table", DType::i64, {1});
  k.launch({1}, {.threads = 64});
  auto y = k.tensor_at(table(0), kF32, {4}, {.is_output = true});
  y(1) = f32(k.thread());
  HostTensor memory(kF32, {4}), addresses(DType::i64, {1});
  addresses.set_bits(0, reinterpret_cast<uint64_t>(memory.view().data));
  const std::string error = error_of([&] { run_on_executor(k.finish(), {addresses.view()}); });
  CAPTURE(error);
  CHECK(has(error, "[RACE]"));
}
