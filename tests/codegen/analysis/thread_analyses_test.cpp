// The analyses of the thread IR on small programs.

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/groups_in_flight.h"
#include "codegen/analysis/live_registers.h"
#include "codegen/analysis/shared_lifetimes.h"
#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using namespace tessera::codegen;
using test::read_body;
using test::variable_of;

namespace {

/// Footprints of the shared accesses at the top level, in order.
std::vector<FootprintRef> footprints_of(const Program& program) {
  Footprints footprints(program);
  std::vector<FootprintRef> result;
  for (const Stmt& stmt : program.body) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      if (effect.access.array->space != ArraySpace::shared) return;
      result.push_back(footprints.of(stmt, effect, program.block(), {}, {}));
    });
  }
  return result;
}

Group order_between(const char* first, const char* second) {
  const auto found = footprints_of(
      read_body(64, "shared s: i32[64] at byte 0", std::string(first) + "\n" + second));
  REQUIRE(found.size() == 2);
  return order_needed(*found[0], *found[1]);
}

}  // namespace

TEST_CASE("footprints say which threads have to be ordered", "[analysis]") {
  const char* const store = "store s[thread] = 1, proved";
  CHECK(order_between(store, "x = load s[thread], proved") == Group::thread);
  CHECK(order_between(store, "x = load s[thread ^ 3], proved") == Group::warp);
  CHECK(order_between(store, "x = load s[63 - thread], proved") == Group::block);
  CHECK(order_between("y = load s[thread], proved", "x = load s[63 - thread], proved") ==
        Group::thread);
  CHECK(order_between("atomic add s[0] with 1, proved", "atomic add s[0] with 2, proved") ==
        Group::thread);
  CHECK(order_between(store, "x = load s[63 - thread], guarded, if thread < 0") == Group::thread);
}

TEST_CASE("a footprint knows what is in flight and what a warp receives", "[analysis]") {
  const auto found = footprints_of(read_body(
      32,
      "param g: i32[64], read only\nshared s: i32[64] at byte 0\nshared m: bf16[256] at byte 256",
      R"(
    registers r: bf16[8]
    async copy s[thread * 2 .. +2] = g[cast<i64>(thread * 2) .. +2], proved
    r[0 .. +8] = load 4 matrices m[thread * 8 .. +8], proved)"));
  REQUIRE(found.size() == 2);
  CHECK(found[0]->in_flight);
  CHECK(found[0]->writes);
  CHECK(found[0]->thread[5] == 5);
  CHECK(!found[1]->in_flight);
  CHECK(found[1]->thread[5] == Footprint::kSeveral);
  CHECK(found[1]->warp[5] == 0);
}

TEST_CASE("values are uniform by what they are made of and where they are made", "[analysis]") {
  const Program program =
      read_body(64, "param c: i32[8], read only\nparam o: i32[8]\nshared s: i32[8] at byte 0", R"(
    a = block_x * n
    b = a + thread
    c_value = load c[cast<i64>(a)], proved
    o_value = load o[cast<i64>(a)], proved
    s_value = load s[3], proved
    registers r: i32[2]
    store r[0] = a
    r_value = load r[0]
    registers q: i32[1]
    store q[0] = b
    q_value = load q[0]
    if thread < 3
      late = load s[4], proved
    for i = 0; < a; += 1
      w = i
    for j = 0; < b; += 1
      v = j)");
  const UniformValues uniform(program);
  const auto is_uniform = [&](const char* name) {
    return uniform(ir::var(variable_of(program, name)));
  };
  for (const char* name : {"a", "c_value", "s_value", "r_value", "i", "w"}) {
    CAPTURE(name);
    CHECK(is_uniform(name));
  }
  for (const char* name : {"b", "o_value", "q_value", "late", "j", "v"}) {
    CAPTURE(name);
    CHECK(!is_uniform(name));
  }
  CHECK(uniform.why_not(ir::var(variable_of(program, "late"))) ==
        "'s' is read where not all threads come");
  const UniformValues over_grid(program, UniformValues::Over::grid);
  CHECK(!over_grid(ir::var(variable_of(program, "a"))));
}

TEST_CASE("lifetimes end with the last use, and at the end for what is in flight", "[analysis]") {
  const Program program =
      read_body(32,
                "param g: i32[64], read only\nshared a: i32[64] at byte 0\nshared b: i32[64] at "
                "byte 256\nshared f: i32[64] at byte 512",
                R"(
    store a[thread] = 1, proved
    x = load a[thread], proved
    for i = 0; < n; += 1
      store b[thread] = i, proved
    async copy f[thread] = g[cast<i64>(thread)], proved
    commit)");
  const auto lifetimes = shared_lifetimes(program);
  const auto of = [&](size_t i) { return lifetimes.at(program.shared[i].get()); };
  CHECK(of(0).last == 1);
  CHECK((of(1).first == 2 && of(1).last == 2));
  CHECK(!of(0).meets(of(1)));
  CHECK((of(2).first == 3 && of(2).last > 4));
  CHECK(of(2).ends_if_awaited == 3);
}

TEST_CASE("lifetimes of what copies write end at an outermost wait for all groups", "[analysis]") {
  const auto of = [](const std::string& body) {
    const Program program =
        read_body(32, "param g: i32[64], read only\nshared f: i32[64] at byte 0",
                  "async copy f[thread] = g[cast<i64>(thread)], proved\n" + body);
    return shared_lifetimes(program).at(program.shared[0].get());
  };
  const Lifetime awaited = of("commit\nwait until 0 groups pending\nx = load f[thread], proved");
  CHECK((awaited.last == 3 && !awaited.ends_if_awaited));
  CHECK(of("commit\nwait until 0 groups pending\ny = 3").last == 2);
  const Lifetime inside =
      of("commit\nif n < 3\n  wait until 0 groups pending\nx = load f[thread], proved");
  CHECK((inside.last == 4 && inside.ends_if_awaited == 3));
  CHECK(!of("x = 3").ends_if_awaited);  // no wait may stand before the commit
}

TEST_CASE("groups in flight are counted over branches and loops", "[analysis]") {
  const auto after = [](const char* body) {
    return groups_after(read_body(32, "", body).body, {}, 4);
  };
  CHECK(after("commit\ncommit\nwait until 1 groups pending") == GroupsInFlight{1, 1});
  CHECK(after("if n < 3\n  commit") == GroupsInFlight{0, 1});
  CHECK(after("for i = 0; < 3; += 1\n  commit") == GroupsInFlight{3, 3});
  CHECK(after("for i = 0; < n; += 1\n  commit") == GroupsInFlight{0, 4});
  CHECK(after("commit\nfor i = 0; < n; += 1\n  wait until 0 groups pending\n  commit") ==
        GroupsInFlight{1, 1});
  const Program program = read_body(32, "", "for i = 0; < 3; += 1\n  commit");
  CHECK(groups_inside(program.body[0], {}, 4) == GroupsInFlight{0, 2});
}

TEST_CASE("live registers are counted at the widest place", "[analysis]") {
  CHECK(live_registers(read_body(32, "", R"(
    registers r: f32[8] = 0
    a = load r[0]
    c = load r[1]
    d = a + c)")) == 9);
  const auto around_loop = [](const char* last) {
    return live_registers(read_body(32, "", std::string(R"(
    registers r: f32[8] = 0
    a = load r[0]
    for i = 0; < n; += 1
      c = a + a
      d = c * c)") + last));
  };
  CHECK(around_loop("") == around_loop("\n    e = a"));
}

TEST_CASE("in a role a value is uniform over the role", "[analysis][roles]") {
  const Program program =
      read_body(96, "undeclared registers r: i32[1]\nundeclared registers q: i32[1]", R"(
    roles
      one: threads 0 .. +32 as t
        a = warp_sum(thread)
        store r[0] = 1
        store q[0] = 5
        u = load r[0]
        b = t
      two: threads 32 .. +64
        c = warp_sum(thread)
        store r[0] = 2
    v = load r[0]
    w = load q[0])");
  const UniformValues uniform(program);
  const auto is_uniform = [&](const char* name) {
    return uniform(ir::var(variable_of(program, name)));
  };
  CHECK(is_uniform("a"));        // of the only warp
  CHECK_FALSE(is_uniform("c"));  // of each of two
  CHECK_FALSE(is_uniform("b"));
  // Registers that several bodies name: the roles leave different values in them.
  CHECK_FALSE(is_uniform("v"));
  CHECK_FALSE(is_uniform("w"));
}

TEST_CASE("the threads of a role touch what they name, by their number in the block",
          "[analysis][roles]") {
  const Program program = read_body(96, "shared s: i32[64] at byte 0", R"(
    roles
      two: threads 32 .. +64 as t
        store s[t] = 1, proved)");
  Footprints footprints(program);
  const auto& role = std::get<RoleBodies>(program.body[0].node).roles[0];
  FootprintRef found;
  for_each_memory_effect(role.body[0], [&](const MemoryEffect& effect) {
    found = footprints.of(role.body[0], effect, role.threads, {}, {});
  });
  REQUIRE(found->thread.size() == 64);
  CHECK(found->thread[0] == 32);
  CHECK(found->thread[63] == 95);
  CHECK(found->warp[31] == 1);
  CHECK(found->warp[32] == 2);
}
