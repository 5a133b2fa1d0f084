// Roles that signal other blocks and wait for them, and what waits give.

#include <functional>
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

/// total[b] = the sum of x[0 .. b] in columns of 64. The role 'chain' of a block adds its own part to the total of its
/// neighbour; the role 'load' hands it the part, and counts itself in `loaded`.
ir::Kernel chained_columns(int chain_warps, bool descends) {
  Builder k("chained_columns");
  auto blocks = k.dim("blocks");
  auto x = k.input("x", DType::i32, {blocks, 64});
  auto total = k.output("total", DType::i32, {blocks, 64});
  auto ready = k.output("ready", DType::i32, {blocks});
  auto loaded = k.output("loaded", DType::u32, {1});
  const dsl::BlockIndex at = k.launch({blocks}, {.threads = 32 * (1 + chain_warps)});
  const Value place = k.let("place", descends ? blocks - 1 - at.x : at.x);
  auto ring = k.ring({.stages = 1});
  auto part = ring.shared(DType::i32, {64}, "part");
  const auto load = [&] {
    ring.fill([&] { k.copy(x(place), part); });
    k.signal_add(loaded(0), 1u);
  };
  const auto chain = [&] {
    auto sum = k.fragment(DType::i32, {64}, "sum");
    k.fill(sum, 0);
    k.if_(place > 0, [&] {
      k.wait_until(ready(place - 1), 1);
      // Turned around: a thread reads what others have written.
      k.parallel({64}, [&](Value c) { sum(c) = total(place - 1, 63 - c); });
    });
    ring.take([&] { k.parallel({64}, [&](Value c) { total(place, c) = sum(c) + part(c); }); });
    k.signal(ready(place), 1);
  };
  k.roles({{.name = "load", .warps = 1, .body = load},
           {.name = "chain", .warps = chain_warps, .body = chain}});
  return k.finish();
}

using Roles = std::function<void(Builder&, Value block, const Ref& y, const Ref& cells,
                                 dsl::Ring& ring, const Ref& tile)>;

/// Two blocks of two roles of two warps: `one` and `other`. Whatever the order in which the roles take turns.
std::string trap_of(const Roles& one, const Roles& other) {
  Builder k("two_roles");
  auto y = k.output("y", DType::i32, {2, 128});
  auto cells = k.output("cells", DType::i32, {4});
  const dsl::BlockIndex at = k.launch({2}, {.threads = 128});
  auto ring = k.ring({.stages = 1});
  auto tile = ring.shared(DType::i32, {64}, "tile");
  k.roles({{.name = "one", .warps = 2, .body = [&] { one(k, at.x, y, cells, ring, tile); }},
           {.name = "other", .warps = 2, .body = [&] { other(k, at.x, y, cells, ring, tile); }}});
  const codegen::cpu::Executable executable(codegen::lower(k.finish()));
  std::string first;
  for (const uint32_t schedule : {0U, 1U, 2U, 3U, 4U}) {
    const HostTensor data = tensor_by(DType::i32, {2, 128}, [](int64_t) { return 0; });
    const HostTensor signals = tensor_by(DType::i32, {4}, [](int64_t) { return 0; });
    const std::vector<codegen::cpu::Argument> arguments = {{.tensor = data.view()},
                                                           {.tensor = signals.view()}};
    const std::string error =
        error_of([&] { executable.run(arguments, {.traps = true, .schedule = schedule}); });
    if (schedule == 0) first = error;
    CAPTURE(schedule, error);
    CHECK(error.empty() == first.empty());
  }
  return first;
}

void write(Builder& k, const Ref& y, Value row) {
  k.parallel({64}, [&](Value c) { y(row, c) = c; });
}
void read(Builder& k, const Ref& y, const dsl::Arg& from, const dsl::Arg& to) {
  k.parallel({64}, [&](Value c) { y(to, 64 + c) = y(from, 63 - c); });
}
void hand_over(Builder& k, dsl::Ring& ring, const Ref& tile, bool fills) {
  if (fills) {
    ring.fill([&] { k.fill(tile, 1); });
  } else {
    ring.take(
        [&] { k.parallel({64}, [&](Value c) { k.device_assert(tile(c) == 1, "a tile of 1"); }); });
  }
}

}  // namespace

TEST_CASE("roles of blocks wait for each other's signals", "[language][roles][grid]") {
  const int warps = GENERATE(1, 2);  // one needs a barrier of the warp, two a named one
  const bool descends = GENERATE(false, true);
  const int64_t blocks = GENERATE(1, 2, 13);
  CAPTURE(warps, descends, blocks);
  const HostTensor x = iota(DType::i32, {blocks, 64});
  const HostTensor total(DType::i32, {blocks, 64});
  const HostTensor ready = tensor_by(DType::i32, {blocks}, [](int64_t) { return 0; });
  const HostTensor loaded = tensor_by(DType::u32, {1}, [](int64_t) { return 0; });
  run_kernel(chained_columns(warps, descends), {&x, &total, &ready, &loaded});
  CHECK_THAT(total, HasValues([](int64_t i) {
               double want = 0;
               // The total of a neighbour is turned around once for each block on the way.
               for (int64_t b = i / 64, c = i % 64; b >= 0; --b, c = 63 - c) {
                 want += static_cast<double>(b * 64 + c);
               }
               return want;
             }));
  CHECK(loaded.value(0) == static_cast<double>(blocks));
}

TEST_CASE("a role's signal covers what its role has written, and what a ring hands it",
          "[language][roles][grid]") {
  const auto waits_and_reads = [](Builder& k, Value, const Ref& y, const Ref& cells) {
    k.wait_until(cells(0), 1);
    read(k, y, 0, 1);
  };
  const auto in_block = [](Builder& k, Value block, int wanted, const auto& body) {
    k.if_(block == wanted, [&] { body(); });
  };
  // Its own writes.
  const Roles signals = [&](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring&,
                            const Ref&) {
    in_block(k, b, 0, [&] {
      write(k, y, b);
      k.signal(cells(0), 1);
    });
    in_block(k, b, 1, [&] { waits_and_reads(k, b, y, cells); });
  };
  const Roles nothing = [](Builder&, Value, const Ref&, const Ref&, dsl::Ring&, const Ref&) {};
  const std::string own = trap_of(
      [&](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, true);
        signals(k, b, y, cells, ring, tile);
      },
      [&](Builder& k, Value, const Ref&, const Ref&, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, false);
      });
  CAPTURE(own);
  CHECK(own.empty());
  // Those of another role: by a ring, or not.
  const bool by_ring = GENERATE(true, false);
  const bool is_writer =
      GENERATE(true, false);  // the two roles stand in the block that writes, or in the other
  CAPTURE(by_ring, is_writer);
  const auto first = [&](Builder& k, Value b, const Ref& y, const Ref& cells) {
    in_block(k, b, is_writer ? 0 : 1, [&] {
      if (is_writer) {
        write(k, y, b);
      } else {
        k.wait_until(cells(0), 1);
      }
    });
  };
  const auto second = [&](Builder& k, Value b, const Ref& y, const Ref& cells) {
    in_block(k, b, is_writer ? 0 : 1, [&] {
      if (is_writer) {
        k.signal(cells(0), 1);
      } else {
        read(k, y, 0, b);
      }
    });
    in_block(k, b, is_writer ? 1 : 0, [&] {
      if (is_writer) {
        waits_and_reads(k, b, y, cells);
      } else {
        write(k, y, b);
        k.signal(cells(0), 1);
      }
    });
  };
  const std::string error = trap_of(
      [&](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        if (!by_ring) hand_over(k, ring, tile, true);
        first(k, b, y, cells);
        if (by_ring) hand_over(k, ring, tile, true);
      },
      [&](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, false);
        second(k, b, y, cells);
      });
  CAPTURE(error);
  CHECK(error.empty() == by_ring);
  if (!by_ring) CHECK(error.find("race on y[0, ") != std::string::npos);
}

TEST_CASE("what a role writes after its signal is a race", "[language][roles][grid]") {
  const std::string error = trap_of(
      [](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, true);
        k.if_(b == 0, [&] {
          k.signal(cells(0), 1);
          write(k, y, b);
        });
      },
      [](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, false);
        k.if_(b == 1, [&] {
          k.wait_until(cells(0), 1);
          read(k, y, 0, b);
        });
      });
  CAPTURE(error);
  CHECK(error.find("race on y[0, ") != std::string::npos);
  CHECK(error.find("[RACE]") != std::string::npos);
}

TEST_CASE("roles of different blocks that wait without end are named with their lines",
          "[language][roles][grid]") {
  const std::string error = trap_of(
      [](Builder& k, Value b, const Ref& y, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, true);
        k.if_(b == 0, [&] { k.wait_until(cells(1), 1); });
        write(k, y, b);
        k.signal(cells(0), 1);
      },
      [](Builder& k, Value b, const Ref&, const Ref& cells, dsl::Ring& ring, const Ref& tile) {
        hand_over(k, ring, tile, false);
        k.if_(b == 1, [&] {
          k.wait_until(cells(2), 1);
          k.signal(cells(1), 1);
        });
      });
  CAPTURE(error);
  CHECK(error.find("[DEADLOCK]") != std::string::npos);
  CHECK(error.find("no block of the grid can go on: 'one' of block (0, 0, 0) waits for cells[1] "
                   "(role_signals_test.cpp:") != std::string::npos);
  CHECK(error.find("'other' of block (1, 0, 0) waits for cells[2] (role_signals_test.cpp:") !=
        std::string::npos);
}

TEST_CASE("a wait gives the value that ended it", "[language][grid]") {
  const bool in_role = GENERATE(false, true);
  const bool manual = GENERATE(false, true);
  CAPTURE(in_role, manual);
  Builder k("value_of_wait");
  auto cells = k.output("cells", DType::i32, {3});
  auto y = k.output("y", DType::i32, {4, 64});
  const dsl::BlockIndex at = k.launch({2}, {.threads = in_role ? 96 : 64});
  const auto body = [&] {
    const auto wait = [&] {
      k.if_else(
          at.x == 0, [&] { k.serial(0, 3, [&](Value i) { k.signal(cells(i), 5 * i + 7); }); },
          [&] {
            k.serial(0, 3, [&](Value i) {
              const Value found = k.wait_until(cells(i), [](Value now) { return now > 0; });
              y(i, k.thread()) = found;
              // It may bound a loop that holds barriers.
              k.if_(i == 2, [&] {
                auto tile = k.shared(DType::i32, {64}, "tile");
                auto sum = k.var(DType::i32, 0, "sum");
                k.serial(0, found, [&](Value round) {
                  if (manual) k.sync();
                  tile(k.thread()) = k.thread() + round;
                  if (manual) k.sync();
                  sum += tile(63 - k.thread());
                });
                y(3, k.thread()) = sum;
              });
            });
            const Value outside = k.wait_until(cells(at.x + 5), 3);
            k.device_assert(outside == 0, "a cell outside gives 0");
          });
    };
    if (manual) {
      k.manual_sync(wait);
    } else {
      wait();
    }
  };
  if (in_role) {
    k.roles(
        {{.name = "one", .warps = 2, .body = body}, {.name = "other", .warps = 1, .body = [] {}}});
  } else {
    body();
  }
  const HostTensor signals = tensor_by(DType::i32, {3}, [](int64_t) { return 0; });
  const HostTensor result(DType::i32, {4, 64});
  run_kernel(k.finish(), {&signals, &result});
  CHECK_THAT(result, HasValues([](int64_t i) {
               const int64_t row = i / 64, c = i % 64;
               return row < 3 ? 5 * row + 7 : 17 * (63 - c) + 17 * 16 / 2;
             }));
}

TEST_CASE("a wait whose value nobody uses takes no shared memory", "[language][grid]") {
  const auto bytes = [](bool uses) {
    Builder k("unused");
    auto cells = k.output("cells", DType::i32, {1});
    auto y = k.output("y", DType::i32, {64});
    k.launch({1}, {.threads = 64});
    const Value found = k.wait_until(cells(0), [](Value now) { return now > 0; });
    y(k.thread()) = uses ? found : k.thread();
    return codegen::lower(k.finish()).shared_bytes;
  };
  CHECK(bytes(false) == 0);
  CHECK(bytes(true) > 0);
}

TEST_CASE("signals of roles compile for every target", "[language][roles][grid][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const int warps : {1, 3}) {
      const KernelSource source = codegen::cuda::emit(
          codegen::lower(chained_columns(warps, true), parse_target(target).value()));
      CHECK(source.cooperative);
      const Compiled compiled = nvrtc->compile(source.text, target);
      CAPTURE(target, warps, compiled.log);
      CHECK(compiled.ok);
    }
  }
}
