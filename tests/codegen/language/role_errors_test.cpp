// Roles and rings that are refused, and the traps of the executor for programs that break their protocol.

#include <functional>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using test::error_of;

constexpr auto kF32 = DType::f32;

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// A kernel with a ring of two stages, a role that loads and one that adds.
struct Parts {
  Builder k{"parts"};
  dsl::Ref x = k.input("x", kF32, {16, 64}), out = k.output("out", kF32, {64});
  dsl::BlockIndex at = k.launch({1}, {.threads = 64});
  dsl::Ring ring = k.ring({.stages = 2});
  dsl::Ref tile = ring.shared(kF32, {64}), plain = k.shared(kF32, {64}, "plain");
  dsl::Ref early = k.fragment(kF32, {64}, "early");
  Parts() { k.fill(out, 0.0f); }

  void fill(const Value& row) {
    ring.fill([&] { k.copy(x.tile({row, 0}, {1, 64}), tile); });
  }
  void add() {
    ring.take([&] { k.parallel({64}, [&](Value j) { out(j) = tile(j); }); });
  }
  void fills(int count) {
    k.serial(0, count, [&](Value i) { fill(i); });
  }
  void adds(int count) {
    k.serial(0, count, [&](Value) { add(); });
  }
  void roles(const std::function<void()>& load, const std::function<void()>& take) {
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "add", .warps = 1, .body = take}});
  }
  ir::Kernel kernel() { return k.finish(); }
};

/// The error that is thrown by the time the kernel is lowered.
std::string refusal(const std::function<void(Parts&)>& build) {
  return error_of([&] {
    Parts parts;
    build(parts);
    codegen::lower(parts.kernel());
  });
}

std::string trap_of(const codegen::Program& program, uint32_t schedule = 0) {
  std::vector<float> x(16 * 64, 1.0f), out(64);
  std::vector<codegen::cpu::Argument> arguments(2);
  arguments[0].tensor = {x.data(), kF32, {16, 64}};
  arguments[1].tensor = {out.data(), kF32, {64}};
  return error_of([&] {
    codegen::cpu::Options options;
    options.traps = true;
    options.schedule = schedule;
    codegen::cpu::Executable(program).run(arguments, options);
  });
}

/// Erases the statements of all bodies for which `is` holds.
void leave_out(codegen::Body& body, const std::function<bool(const codegen::Stmt&)>& is) {
  std::erase_if(body, is);
  for (codegen::Stmt& stmt : body) {
    codegen::for_each_body(stmt, [&](codegen::Body& inner) { leave_out(inner, is); });
  }
}

}  // namespace

TEST_CASE("roles stand once, last and at the top level", "[language][roles]") {
  CHECK(has(refusal([](Parts& p) {
              p.roles([&] { p.fills(1); }, [&] { p.adds(1); });
              p.k.sync();
            }),
            "a statement after the roles [ROLES_PLACE]"));
  CHECK(has(refusal([](Parts& p) {
              p.k.serial(0, 2, [&](Value) { p.roles([&] { p.fills(1); }, [&] { p.adds(1); }); });
            }),
            "roles inside another statement [ROLES_PLACE]"));
  CHECK(has(refusal([](Parts& p) {
              p.roles([&] { p.fills(1); }, [&] { p.adds(1); });
              p.roles([&] { p.fills(1); }, [&] { p.adds(1); });
            }),
            "[ROLES_PLACE]"));
}

TEST_CASE("a role does nothing that all threads of the block do", "[language][roles]") {
  const auto in_role = [](const std::function<void(Parts&)>& body) {
    return refusal([&](Parts& p) { p.roles([&] { body(p); }, [&] { p.adds(1); }); });
  };
  CHECK(has(in_role([](Parts& p) { p.k.sync_grid(); }), "k.sync_grid in role 'load' [SYNC_ROLE]"));
  CHECK(has(in_role([](Parts& p) { p.k.return_if(p.k.thread() == 0); }),
            "k.return_if in role 'load' [SYNC_ROLE]"));
}

TEST_CASE("two roles share no plain tile that one of them writes", "[language][roles]") {
  const std::string shared = refusal([](Parts& p) {
    p.roles(
        [&] {
          p.fills(1);
          p.plain(p.k.thread()) = 1.0f;
        },
        [&] {
          p.adds(1);
          p.out(p.k.thread()) = p.plain(p.k.thread());
        });
  });
  CHECK(has(shared,
            "shared 'plain' is used by role 'add' and by role 'load' "
            "[SHARED_BETWEEN_ROLES]"));
  CHECK(has(shared, "put it into a ring"));
  CHECK(has(shared, "role_errors_test.cpp"));
  CHECK(has(refusal([](Parts& p) {
              p.k.fill(p.early, 0.0f);
              p.roles([&] { p.fills(1); },
                      [&] {
                        p.adds(1);
                        p.k.copy(p.early, p.out);
                      });
            }),
            "fragment 'early' is used by role 'add' and by all threads [SHARED_BETWEEN_ROLES]"));
  // Written before the roles, it is there for both.
  CHECK(refusal([](Parts& p) {
          p.k.fill(p.plain, 1.0f);
          p.roles([&] { p.ring.fill([&] { p.k.copy(p.plain, p.tile); }); },
                  [&] {
                    p.adds(1);
                    p.k.copy(p.plain, p.out);
                  });
        }) == "");
}

TEST_CASE("two roles that divide the turns of a ring are told that each takes every turn",
          "[language][roles]") {
  const std::string text = error_of([] {
    Builder k("divided");
    auto x = k.input("x", kF32, {16, 64});
    auto y = k.output("y", kF32, {16, 64});
    k.launch({1}, {.threads = 96});
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(kF32, {1, 64}, "tile");
    const auto take = [&](int first) {
      k.serial(0, 8, [&](const Value& i) {
        ring.take([&] { k.copy(tile, y.tile({i * 2 + first, 0}, {1, 64})); });
      });
    };
    k.roles({{.name = "load",
              .warps = 1,
              .body =
                  [&] {
                    k.serial(0, 16, [&](const Value& i) {
                      ring.fill([&] { k.copy(x.tile({i, 0}, {1, 64}), tile); });
                    });
                  }},
             {.name = "even", .warps = 1, .body = [&] { take(0); }},
             {.name = "odd", .warps = 1, .body = [&] { take(1); }}});
    codegen::lower(k.finish());
  });
  CAPTURE(text);
  CHECK(has(text,
            "role 'even' takes 8 times what role 'load' fills 16 times [RING_COUNT]\n"
            "  expected  16 takes by each role\n  got       8\n"
            "  hint      each role takes every turn: skip those of the others by k.if_ in the "
            "take, or give each role a ring of its own\n"));
}

TEST_CASE("registers of roles are what a multiprocessor has", "[language][roles]") {
  const auto refused = [](int load, int multiply) {
    return error_of([&] {
      Builder k("registers");
      auto out = k.output("out", kF32, {256});
      k.launch({1}, {.threads = 384});
      k.roles({{.name = "load", .warps = 1, .registers = load, .body = [] {}},
               {.name = "multiply", .warpgroups = 2, .registers = multiply, .body = [&] {
                  out(k.thread()) = 0.0f;
                }}});
    });
  };
  CHECK(refused(40, 232) == "");
  CHECK(refused(24, 240) == "");
  CHECK(has(refused(40, 240), "[ROLE_REGISTERS]"));
  CHECK(has(refused(40, 240), "40 + 240 + 240 = 520 > 504"));
  CHECK(has(refused(44, 232), "a multiple of 8"));
  CHECK(has(refused(16, 232), "24 .. 256"));
  CHECK(has(error_of([] {
              Builder k("few");
              k.launch({1}, {.threads = 64});
              k.roles({{.name = "one", .warps = 1, .body = [] {}}});
            }),
            "launch with 32 threads"));
}

TEST_CASE("a ring is used as a ring", "[language][roles]") {
  const auto fills = [](Parts& p) { p.fills(1); };
  const auto roles = [&](const std::function<void(Parts&)>& load,
                         const std::function<void(Parts&)>& take) {
    return refusal([&](Parts& p) { p.roles([&] { load(p); }, [&] { take(p); }); });
  };
  CHECK(has(roles(fills, [](Parts& p) { p.ring.take([&] { p.k.fill(p.tile, 0.0f); }); }),
            "'tile' is written in a take [RING_WRITE]"));
  CHECK(has(roles(fills,
                  [](Parts& p) {
                    p.adds(1);
                    p.k.copy(p.tile, p.out);
                  }),
            "'tile' is used outside of a fill or a take [RING_OUTSIDE]"));
  CHECK(has(roles(fills, fills), "roles 'load' and 'add' fill one ring [RING_ROLE]"));
  CHECK(has(roles(
                [](Parts& p) {
                  p.fills(1);
                  p.adds(1);
                },
                [](Parts& p) { p.adds(1); }),
            "role 'load' fills a ring and takes from it [RING_ROLE]"));
  CHECK(has(roles([](Parts& p) { p.ring.fill([&] { p.fills(1); }); }, [](Parts& p) { p.adds(1); }),
            "a fill inside a fill or a take of the same ring [RING_NESTED]"));
  CHECK(has(refusal([](Parts& p) { p.k.ring({.stages = 0}); }), "1 .. 32"));
  CHECK(has(refusal([](Parts& p) { p.fills(1); }), "a fill outside of the roles [RING_ROLE]"));
  CHECK(has(roles([](Parts& p) { p.fills(9); }, [](Parts& p) { p.adds(8); }),
            "role 'add' takes 8 times what role 'load' fills 9 times [RING_COUNT]"));
  CHECK(has(roles([](Parts& p) { p.fills(9); }, [](Parts& p) { p.adds(8); }),
            "run both in loops of the same bounds"));
  CHECK(has(roles(fills, [](Parts&) {}), "a ring is filled and not taken [RING_COUNT]"));
  CHECK(has(roles([](Parts& p) { p.k.if_(p.k.thread() == 0, [&] { p.fills(1); }); },
                  [](Parts& p) { p.adds(1); }),
            "[SYNC_DIVERGENT]"));
}

TEST_CASE("what breaks the protocol of a ring is named with both lines", "[language][roles]") {
  const auto program = [] {
    Parts p;
    p.roles([&] { p.fills(7); }, [&] { p.adds(7); });
    return codegen::lower(p.kernel());
  };
  const auto arrives_at = [](const codegen::Stmt& stmt, codegen::Array::RingPart part) {
    const auto* arrive = std::get_if<codegen::MbarrierArrive>(&stmt.node);
    return arrive != nullptr && arrive->at.array->ring_part == part;
  };
  using Part = codegen::Array::RingPart;
  for (const uint32_t schedule : {0u, 1u, 2u, 3u}) {
    CAPTURE(schedule);
    CHECK(trap_of(program(), schedule) == "");

    codegen::Program never_full = program();  // the arrival that hands a stage over
    leave_out(never_full.body, [&](const auto& stmt) { return arrives_at(stmt, Part::full); });
    const std::string endless = trap_of(never_full, schedule);
    CHECK(has(endless, "[DEADLOCK]"));
    CHECK(has(endless, "'load' (role_errors_test.cpp:"));
    CHECK(has(endless, "'add' (role_errors_test.cpp:"));

    codegen::Program never_empty = program();
    leave_out(never_empty.body, [&](const auto& stmt) { return arrives_at(stmt, Part::empty); });
    CHECK(has(trap_of(never_empty, schedule), "[DEADLOCK]"));

    codegen::Program reads_early = program();  // no wait for a full stage
    leave_out(reads_early.body, [&](const codegen::Stmt& stmt) {
      const auto* wait = std::get_if<codegen::MbarrierWait>(&stmt.node);
      return wait != nullptr && wait->at.array->ring_part == Part::full;
    });
    const std::string early = trap_of(reads_early, schedule);
    INFO(early);
    CHECK((has(early, "[RING_EARLY]") || has(early, "[UNINITIALISED]") ||
           has(early, "[SIGNAL_PHASE]")));
  }
}

TEST_CASE("a stage that is given back before its last read is overwritten too early",
          "[language][roles]") {
  Parts p;
  p.roles([&] { p.fills(7); }, [&] { p.adds(7); });
  codegen::Program program = codegen::lower(p.kernel());
  auto& roles = std::get<codegen::RoleBodies>(program.body.back().node).roles;
  // The arrival of the take moves up to its wait.
  const auto early = [](codegen::Body& body) {
    const auto wait = std::find_if(body.begin(), body.end(), [](const codegen::Stmt& stmt) {
      return std::holds_alternative<codegen::MbarrierWait>(stmt.node);
    });
    const auto arrive = std::find_if(wait, body.end(), [](const codegen::Stmt& stmt) {
      return codegen::any_in(stmt, [](const codegen::Stmt& inner) {
        return std::holds_alternative<codegen::MbarrierArrive>(inner.node);
      });
    });
    REQUIRE(arrive != body.end());
    std::rotate(wait + 1, arrive, arrive + 1);
  };
  bool found = false;
  for (codegen::RoleBodies::Role& role : roles) {
    if (role.name != "add") continue;
    codegen::walk(role.body, [&](codegen::Stmt& stmt) {
      auto* loop = std::get_if<codegen::For>(&stmt.node);
      if (loop == nullptr || loop->unrolled || found) return;
      early(loop->body);
      found = true;
    });
  }
  REQUIRE(found);
  bool is_named = false;
  for (uint32_t schedule = 0; schedule < 16; ++schedule) {
    const std::string trap = trap_of(program, schedule);
    INFO(trap);
    CHECK(trap != "");
    UNSCOPED_INFO(trap);
    is_named = is_named || has(trap, "[RING_LATE]") || has(trap, "[RING_EARLY]");
  }
  CHECK(is_named);
}

TEST_CASE("a fill that is not taken is named at the end of the block", "[language][roles]") {
  Builder k("left");
  auto count = k.scalar("count", DType::i32);
  auto out = k.output("out", kF32, {64});
  k.launch({1}, {.threads = 64});
  auto ring = k.ring({.stages = 2});
  auto tile = ring.shared(kF32, {64});
  k.roles(
      {{.name = "load",
        .warps = 1,
        .body =
            [&] { k.serial(0, count, [&](Value) { ring.fill([&] { k.fill(tile, 1.0f); }); }); }},
       {.name = "add", .warps = 1, .body = [&] {
          k.serial(0, 8, [&](Value) { ring.take([&] { k.copy(tile, out); }); });
        }}});
  const ir::Kernel kernel = k.finish();
  const auto run = [&](int64_t fills) {
    std::vector<float> data(64);
    std::vector<codegen::cpu::Argument> arguments(2);
    arguments[0].tensor = {data.data(), kF32, {64}};
    arguments[1].integer = fills;
    return error_of([&] {
      codegen::cpu::Options options;
      options.traps = true;
      codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, options);
    });
  };
  CHECK(run(8) == "");
  const std::string left = run(9);
  CHECK(has(left, "the block ends, and a fill of stage 0 of ring 0 is not taken"));
  CHECK(has(left, "[RING_LEFT]"));
  CHECK(has(left, "4 takes of 5 fills of the stage"));
  CHECK(has(run(7), "[DEADLOCK]"));
}

TEST_CASE("a tile of another block's ring is refused where it is named, in fills and in takes") {
  const bool in_take = GENERATE(false, true), is_part = GENERATE(false, true);
  Builder k("remote_ring");
  auto x = k.input("x", kF32, {2, 64});
  auto y = k.output("y", kF32, {2, 64});
  const dsl::BlockIndex at = k.launch({2}, {.threads = 64, .cluster = 2});
  auto ring = k.ring({.stages = 1});
  auto tile = ring.shared(kF32, {64}, "tile");
  int line = 0;
  const auto remote = [&] {
    line = __LINE__ + 1;
    return k.of_block(is_part ? tile.tile({0}, {64}) : tile, 1 - k.cluster_rank());
  };
  const auto load = [&] { ring.fill([&] { k.copy(x(at.x), in_take ? tile : remote()); }); };
  const auto take = [&] { ring.take([&] { k.copy(in_take ? remote() : tile, y(at.x)); }); };
  try {
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "out", .warps = 1, .body = take}});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == "RING_REMOTE");
    CHECK(error.loc().line == line);
    CHECK(has(error.what(),
              "'tile' is a tile of a ring, of which another block has stages of its own"));
    CHECK(has(error.what(), "expected  a shared tile that is of no ring"));
  }
}

}  // namespace tessera
