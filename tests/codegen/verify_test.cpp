// Programs that the verifier between passes refuses, one program per rule.

#include <fmt/format.h>

#include "codegen/verify/thread_ir.h"
#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::codegen;
using test::read_body;

namespace {

constexpr Expectations kAll = {.is_shared_placed = true, .are_registers_declared = true};

std::string complaint(const Program& program, const Expectations& expected = kAll) {
  return test::error_of([&] { verify(program, {}, expected, "a_pass"); });
}
bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a sound program has nothing to complain of", "[verify]") {
  const Program program = read_body(64, "shared s: f32[64] at byte 0", R"(
    registers r: f32[2] = 0
    unrolled i = 0; < 2; += 1
      x = load r[i]
      store s[thread] = x, proved
    barrier
    y = load s[63 - thread], proved
    if thread < 32
      store s[thread] = y, proved)");
  CHECK(complaint(program).empty());
}

TEST_CASE("a variable that another body defines is refused", "[verify]") {
  Program program = read_body(64, "", R"(
    if thread < 32
      x = thread * 2
    y = thread)");
  const auto x = test::variable_of(program, "x");
  std::get<Let>(program.body[1].node).value = ir::var(x);
  const std::string text = complaint(program);
  CHECK(has(text, "after a_pass: a variable is defined before it is used: x in x"));
}

TEST_CASE("a register array without a declaration is refused at the end", "[verify]") {
  const Program program = read_body(64, "undeclared registers r: f32[2]", "store r[0] = 1");
  CHECK(has(complaint(program), "an array is declared before it is used: r"));
  CHECK(complaint(program, {.is_shared_placed = true}).empty());
}

TEST_CASE("a value of another dtype than its name is refused", "[verify]") {
  Program program = read_body(64, "shared s: f32[64] at byte 0", "x = thread");
  auto var = std::make_shared<ir::Var>(*test::variable_of(program, "x"));
  var->type = DType::i64;
  std::get<Let>(program.body[0].node).var = var;
  CHECK(has(complaint(program), "a value has the dtype of its name: x"));

  program = read_body(64, "shared s: f32[64] at byte 0", "store s[thread] = 1, proved");
  std::get<Store>(program.body[0].node).value = ir::index(1);
  CHECK(has(complaint(program), "a store has the dtype of its array: 1 into s"));

  program = read_body(64, "", R"(
    if thread < 3
      x = 1)");
  std::get<If>(program.body[0].node).condition = ir::index(1);
  CHECK(has(complaint(program), "a condition is boolean: 1"));
}

TEST_CASE("an offset of the wrong width is refused", "[verify]") {
  Program program = read_body(64, "shared s: f32[64] at byte 0", "x = load s[thread], proved");
  Access& from = std::get<Load>(program.body[0].node).from;
  from.offset = ir::cast(DType::i64, from.offset);
  CHECK(
      has(complaint(program), "an offset is i64 in global memory, else i32: s[cast<i64>(thread)]"));
}

TEST_CASE("accesses in flight without a group are refused", "[verify]") {
  const char* memory = "param x: f32[64], read only\nshared s: f32[64] at byte 0";
  const auto program_of = [&](const char* end) {
    return read_body(64, memory,
                     std::string("async copy s[thread] = x[cast<i64>(thread)], proved\n") + end);
  };
  CHECK(has(complaint(program_of("")), "a group of accesses in flight is never closed"));
  CHECK(has(complaint(program_of("wait until 0 groups pending")),
            "a group of accesses in flight is closed before a wait"));
  CHECK(complaint(program_of("commit\nwait until 0 groups pending")).empty());
  const Program in_loop = read_body(64, memory, R"(
    for i = 0; < n; += 1
      wait until 0 groups pending
      async copy s[thread] = x[cast<i64>(thread)], proved
    commit)");
  CHECK(has(complaint(in_loop), "a group of accesses in flight is closed before a wait"));
}

TEST_CASE("a barrier that a pass put where threads part is refused", "[verify]") {
  Program program = read_body(64, "", R"(
    if thread < 32
      barrier)");
  CHECK(complaint(program).empty());  // the author's own
  Stmt& barrier = std::get<If>(program.body[0].node).then[0];
  std::get<Barrier>(barrier.node).reason = 1;
  CHECK(has(complaint(program), "all threads of the block come to a barrier"));
  std::get<If>(program.body[0].node).condition = ir::var(program.blocks[0]) < ir::index(3);
  CHECK(complaint(program).empty());
}

TEST_CASE("loops that do not end, or cannot be unrolled, are refused", "[verify]") {
  const auto loop = [](const char* head) {
    return read_body(64, "", std::string(head) + "\n  x = i");
  };
  CHECK(has(complaint(loop("for i = 0; < n; += 0")), "the step of a loop is positive: i"));
  CHECK(
      has(complaint(loop("unrolled i = 0; < n; += 1")), "an unrolled loop has constant bounds: i"));
}

TEST_CASE("registers beside their array are refused", "[verify]") {
  const Program store = read_body(64, "", "registers r: f32[2]\nstore r[2] = 1");
  CHECK(has(complaint(store), "registers are inside of their array: r[2 .. +1] of 2"));
  const Program slice =
      read_body(64, "shared s: f32[64] at byte 0",
                "registers r: f32[4]\nr[2 .. +4] = load s[thread * 4 .. +4], proved");
  CHECK(has(complaint(slice), "registers are inside of their array: r[2 .. +4] of 4"));
}

TEST_CASE("shared memory outside of the arena is refused", "[verify]") {
  Program program = read_body(64, "shared s: f32[64] at byte 128", "x = thread");
  program.shared_bytes = 300;
  CHECK(
      has(complaint(program), "a shared array is inside of the arena: s ends at byte 384 of 300"));
  const Program open =
      read_body(64, "shared s: f32[64] at byte 0", "x = load s[open] at [thread], proved");
  CHECK(has(complaint(open), "an access has an offset: s"));
  CHECK(complaint(open, {}).empty());
}

TEST_CASE("shared arrays in the same bytes while both are in use are refused", "[verify]") {
  const char* const arrays =
      "param g: i32[64], read only\nshared a: i32[64] at byte 0\nshared b: i32[64] at byte 128";
  const std::string copy = "async copy a[thread] = g[cast<i64>(thread)], proved\ncommit\n";
  const std::string store = "store b[thread] = 1, proved\n";
  const auto complaint_of = [&](const std::string& body) {
    Program program = read_body(64, arrays, body);
    program.shared_bytes = 384;
    return complaint(program, {.is_shared_placed = true});
  };
  const std::string rule = "shared arrays in use together lie apart: 'a' and 'b'";
  CHECK(has(complaint_of(copy + store), rule));
  CHECK(complaint_of(copy + "wait until 0 groups pending\n" + store).empty());
  CHECK(has(complaint_of(copy + "wait until 1 groups pending\n" + store), rule));
  CHECK(has(
      complaint_of(copy + "wait until 0 groups pending\n" + store + "x = load a[thread], proved"),
      rule));
}

TEST_CASE("roles are whole warps of the block, disjoint, once and at the top level",
          "[verify][roles]") {
  const auto text = [](const char* body) { return complaint(read_body(96, "", body)); };
  CHECK(text(R"(
    roles
      a: threads 0 .. +32
        x = thread
      b: threads 32 .. +64 as t
        named barrier 1 of 64 threads
        y = t)") == "");
  CHECK(has(text("roles\n  a: threads 0 .. +16\n    x = thread"),
            "a role is whole warps: 'a' is threads 0 .. +16 of 96"));
  CHECK(has(text("roles\n  a: threads 16 .. +32\n    x = thread"), "a role is whole warps"));
  CHECK(has(text("roles\n  a: threads 64 .. +64\n    x = thread"),
            "a role is inside of the block: 'a' is threads 64 .. +64 of 96"));
  CHECK(has(text("roles\n  a: threads 0 .. +64\n    x = thread\n"
                 "  b: threads 32 .. +32\n    y = thread"),
            "roles are disjoint: 'b' is threads 32 .. +32 of 96, and so is 'a' in part"));
  CHECK(has(text("roles\n  a: threads 0 .. +32\n    x = thread\n"
                 "z = thread\n"
                 "roles\n  b: threads 32 .. +32\n    y = thread"),
            "roles stand once, at the top level"));
  CHECK(has(text("if n < 3\n  roles\n    a: threads 0 .. +32\n      x = thread"),
            "roles stand once, at the top level"));
  CHECK(has(text("roles\n  a: threads 0 .. +32 as t\n    x = t\n"
                 "  b: threads 32 .. +32\n    y = thread") +
                complaint([] {
                  Program program = read_body(96, "", R"(
    roles
      a: threads 0 .. +32 as t
        x = t
      b: threads 32 .. +32
        y = thread)");
                  auto& roles = std::get<RoleBodies>(program.body[0].node).roles;
                  std::get<Let>(roles[1].body[0].node).value = ir::var(roles[0].thread);
                  return program;
                }()),
            "a variable is defined before it is used: t in t"));
}

TEST_CASE("roles that begin while copies are in flight are refused", "[verify][roles]") {
  const auto text = [](const std::string& before) {
    return complaint(read_body(64, "param x: f32[64], read only\nshared s: f32[64] at byte 0",
                               before + "\nroles\n  a: threads 0 .. +32\n    y = thread\n"));
  };
  const std::string copy = "async copy s[thread] = x[cast<i64>(thread)], proved\n";
  const char* const rule = "no copies are in flight when roles begin";
  CHECK(has(text(copy + "commit"), rule));
  CHECK(has(text(copy + "commit\nwait until 1 groups pending"), rule));
  CHECK(has(text("if n < 3\n  " + copy + "  commit\nz = 1"), rule));
  CHECK(has(text(copy + "commit\nfor i = 0; < n; += 1\n  wait until 0 groups pending"), rule));
  CHECK(text(copy + "commit\nwait until 0 groups pending") == "");
  CHECK(text("commit") == "");
}

TEST_CASE("no barrier of the block and no return stands in a role", "[verify][roles]") {
  const auto text = [](const std::string& statement) {
    return complaint(read_body(96, "", "roles\n  a: threads 0 .. +64\n    " + statement + "\n"));
  };
  CHECK(has(text("barrier"), "no barrier of the block stands in a role: a"));
  CHECK(has(text("cluster barrier"), "no barrier of the block stands in a role: a"));
  CHECK(has(text("return if thread < 3"), "no thread leaves the kernel in a role: a"));
  CHECK(text("warp barrier") == "");
}

TEST_CASE("named barriers have an id and whole warps, those of a pass all threads of their role",
          "[verify][roles]") {
  const auto text = [](int id, int threads, int reason, const char* around = "") {
    Program program = read_body(
        96, "",
        fmt::format("roles\n  a: threads 0 .. +64\n    {}named barrier {} of {} threads\n", around,
                    id, threads));
    Stmt* stmt = &std::get<RoleBodies>(program.body[0].node).roles[0].body[0];
    if (auto* branch = std::get_if<If>(&stmt->node)) stmt = &branch->then[0];
    std::get<Barrier>(stmt->node).reason = reason;
    return complaint(program, {.is_shared_placed = true});
  };
  CHECK(text(15, 96, 0) == "");
  CHECK(text(1, 64, 1) == "");
  CHECK(text(1, 64, 1, "if n < 3\n      ") == "");
  CHECK(has(text(0, 64, 0), "a named barrier has an id of 1 to 15: named barrier 0 of 64 threads"));
  CHECK(has(text(16, 64, 0), "a named barrier has an id of 1 to 15"));
  CHECK(has(text(1, 48, 0), "a named barrier counts whole warps of the block"));
  CHECK(has(text(1, 128, 0), "a named barrier counts whole warps of the block"));
  CHECK(has(text(1, 96, 1), "all threads of the role come to a barrier"));
  CHECK(has(text(1, 64, 1, "if thread < 32\n      "), "all threads of the role come to a barrier"));
}

namespace {

constexpr const char* kMbarriers =
    "param g: i32[64], read only\nshared s: i32[64] at byte 0\n"
    "shared b: u64[2] at byte 256, mbarriers of 1 arrivals";
constexpr Expectations kLowered = {
    .is_shared_placed = true, .are_bulk_copies_lowered = true, .are_registers_declared = true};

std::string complaint_of(const std::string& body) {
  return complaint(read_body(32, kMbarriers, "mbarrier init b[0 .. +2]\n" + body), kLowered);
}

}  // namespace

TEST_CASE("mbarriers in order have nothing to complain of", "[verify]") {
  CHECK(
      complaint_of("bulk copy s[0 .. +4] = g[cast<i64>(0) .. +4], proved, mbarrier b[0], expected\n"
                   "mbarrier arrive b[0]\n"
                   "mbarrier wait b[0], phase 0")
          .empty());
}

TEST_CASE("an mbarrier that is used before it is initialised is refused", "[verify]") {
  const Program program =
      read_body(32, kMbarriers, "mbarrier arrive b[0]\nmbarrier init b[0 .. +2]");
  CHECK(has(complaint(program, kLowered), "an mbarrier is initialised before it is used: b"));
}

TEST_CASE("mbarriers and data are not mixed up", "[verify]") {
  CHECK(has(complaint_of("x = load b[0], proved"), "mbarriers are no data: b"));
  CHECK(has(complaint_of("mbarrier arrive s[0]"), "an mbarrier statement names mbarriers: s"));
}

TEST_CASE("a bulk copy names its mbarrier once it is lowered", "[verify]") {
  const char* const grouped = "bulk copy s[0 .. +4] = g[cast<i64>(0) .. +4], proved\ncommit";
  CHECK(has(complaint_of(grouped), "a bulk copy names its mbarrier and has no guard: s"));
  CHECK(complaint(read_body(32, kMbarriers, grouped), kAll).empty());
  CHECK(
      has(complaint_of(
              "bulk copy s[0 .. +4] = g[cast<i64>(0) .. +4], proved, if thread < 3, mbarrier b[0]"),
          "a bulk copy names its mbarrier and has no guard: s"));
}

TEST_CASE("a bulk copy of a role names its mbarrier, whose groups are of the block",
          "[verify][roles]") {
  const char* const grouped =
      "roles\n  a: threads 0 .. +32\n"
      "    bulk copy s[0 .. +4] = g[cast<i64>(0) .. +4], proved\n    commit";
  CHECK(has(complaint(read_body(32, kMbarriers, grouped), kAll),
            "a bulk copy of a role names its mbarrier: s"));
}

TEST_CASE("bulk copies are whole pieces", "[verify]") {
  CHECK(has(complaint_of("bulk copy s[0 .. +3] = g[cast<i64>(0) .. +3], proved, mbarrier b[0]"),
            "a bulk copy moves whole pieces of 16 bytes: 12 bytes"));
}

TEST_CASE("mbarriers have their place and a possible number of arrivals", "[verify]") {
  const auto misplaced = [](const char* mbarriers) {
    return complaint(read_body(32, mbarriers, ""), kLowered);
  };
  CHECK(has(misplaced("shared b: u64[2] at byte 4, mbarriers of 1 arrivals"),
            "mbarriers are aligned to 8 bytes and count to 2^20 - 1: b"));
  CHECK(has(misplaced("shared b: u64[2] at byte 0, mbarriers of 1048576 arrivals"),
            "mbarriers are aligned to 8 bytes and count to 2^20 - 1: b"));
}

TEST_CASE("the phase of a wait is an integer", "[verify]") {
  Program program =
      read_body(32, kMbarriers, "mbarrier init b[0 .. +2]\nmbarrier wait b[0], phase 0");
  std::get<MbarrierWait>(program.body[1].node).phase = ir::float_constant(DType::f32, 0);
  CHECK(has(complaint(program, kLowered), "a phase is an integer"));
}

TEST_CASE("an atomic of several elements is a relaxed sum of floats that has an instruction",
          "[verify]") {
  const Program program = read_body(64, "shared s: f32[64] at byte 0", R"(
    registers r: f32[4] = 0
    atomic add s[0 .. +4] with r[0 .. +4], proved)");
  CHECK(has(
      complaint(program),
      "an atomic of several elements is a relaxed sum of floats that has such an instruction: s"));
}
