// The passes of finish() on small programs of the thread IR.

#include <fmt/format.h>

#include "codegen/passes/choose_access_forms.h"
#include "codegen/passes/choose_unroll.h"
#include "codegen/passes/inline_loads.h"
#include "codegen/passes/remove_dead.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using test::body_text;
using test::read_body;

namespace {

constexpr const char* kMemory =
    "param g: i32[n], read only\nparam o: i32[n]\nshared s: i32[64] at byte 0";

std::string without_dead(const char* body) {
  codegen::Program program = read_body(64, kMemory, body);
  codegen::drop_checks(program);
  codegen::remove_dead(program);
  return body_text(program);
}
std::string with_inlined(const char* body) {
  codegen::Program program = read_body(64, kMemory, body);
  codegen::inline_loads(program);
  return body_text(program);
}

}  // namespace

TEST_CASE("what only the executor looks at goes, and what only that used", "[passes]") {
  CHECK(without_dead(R"(
    limit = n * 2
    assume thread < limit
    check s[thread]: thread in 0 .. +64
    assert thread < n)") == "assert thread < n\n");
}

TEST_CASE("values that nobody uses go, backwards to what made them", "[passes]") {
  CHECK(without_dead(R"(
    a = load g[cast<i64>(thread)], proved
    b = a + 1
    c = load g[0], proved
    registers r: i32[2]
    registers q: i32[1]
    store q[0] = c
    d = load q[0])") ==
        "c = load g[0], proved\n"
        "registers q: i32[1]\n"
        "store q[0] = c\n");
}

TEST_CASE("empty loops and branches go, exchanges and stores stay", "[passes]") {
  CHECK(without_dead(R"(
    for i = 0; < n; += 1
      # nothing
      x = i
    if thread < 3
      y = thread
    v = ballot(thread < 3)
    if thread < 4
      store s[thread] = 1, proved
    else
      # nothing)") ==
        "v = ballot(thread < 3)\n"
        "if thread < 4\n"
        "  store s[thread] = 1, proved\n");
}

TEST_CASE("a load moves to its only use unless something between disturbs it", "[passes]") {
  CHECK(with_inlined(R"(
    a = load g[cast<i64>(thread)], proved
    b = load s[thread], proved
    store o[cast<i64>(thread)] = a + b, proved)") ==
        "a = load at use g[cast<i64>(thread)], proved\n"
        "b = load at use s[thread], proved\n"
        "store o[cast<i64>(thread)] = a + b, proved\n");
  for (const char* between :
       {"store s[0] = 1, proved", "barrier", "warp barrier",
        "commit\n    wait until 0 groups pending", "v = ballot(thread < 3)", "return if thread < 3",
        "wait for the previous kernel", "atomic add s[0] with 1, proved"}) {
    CAPTURE(between);
    const std::string text = std::string("    a = load s[thread], proved\n    ") + between +
                             "\n    store o[cast<i64>(thread)] = a, proved";
    CHECK(with_inlined(text.c_str()).find("at use") == std::string::npos);
  }
  // Used twice, and in the header of a loop.
  CHECK(with_inlined(R"(
    a = load s[thread], proved
    store o[cast<i64>(thread)] = a + a, proved
    b = load s[thread], proved
    for i = 0; < b; += 1
      barrier)")
            .find("at use") == std::string::npos);
}

TEST_CASE("an index that a moved load names is evaluated at the use, too", "[passes]") {
  CHECK(with_inlined(R"(
    i = load s[thread], proved
    a = load g[cast<i64>(i)], proved
    barrier
    store o[cast<i64>(thread)] = a, proved)") ==
        "i = load at use s[thread], proved\n"
        "a = load g[cast<i64>(i)], proved\n"
        "barrier\n"
        "store o[cast<i64>(thread)] = a, proved\n");
}

TEST_CASE("many slots that only move go in four rounds", "[passes]") {
  const auto unrolled = [](const char* memory, const char* body) {
    codegen::Program program = read_body(64, memory, body);
    for (codegen::Stmt& stmt : program.body) {
      if (auto* loop = std::get_if<codegen::For>(&stmt.node)) loop->over_slots = true;
    }
    codegen::choose_unroll(program);
    return body_text(program);
  };
  CHECK(unrolled(kMemory, R"(
    unrolled i = 0; < 40; += 1
      x = load g[cast<i64>(i)], proved
      store o[cast<i64>(i)] = x, proved)")
            .find("unrolled i = 0; < 40; += 1; 10 at once\n") == 0);
  CHECK(unrolled(kMemory, R"(
    unrolled i = 0; < 16; += 1
      x = load g[cast<i64>(i)], proved)")
            .find("at once") == std::string::npos);
  CHECK(unrolled("undeclared registers r: i32[40]", R"(
    unrolled i = 0; < 40; += 1
      place = i * 1
      store r[place] = 0)")
            .find("at once") == std::string::npos);
}

TEST_CASE("a guarded vector load branches where its registers only move, or the memory is written",
          "[passes]") {
  const auto is_by_branch = [](const char* memory, const char* body) {
    codegen::Program program = read_body(64, memory, body);
    codegen::choose_access_forms(program);
    return std::get<codegen::Load>(program.body[1].node).by_branch;
  };
  const char* constant = "param g: f32[n], read only\nparam o: f32[n]";
  const char* moved = R"(
    registers r: f32[4]
    r[0 .. +4] = load g[cast<i64>(thread * 4) .. +4], guarded, if thread < n
    store o[cast<i64>(thread * 4) .. +4] = r[0 .. +4], guarded, if thread < n)";
  const char* computed = R"(
    registers r: f32[4]
    r[0 .. +4] = load g[cast<i64>(thread * 4) .. +4], guarded, if thread < n
    x = load r[0]
    store o[cast<i64>(thread)] = x, guarded, if thread < n)";
  CHECK(is_by_branch(constant, moved));
  CHECK_FALSE(is_by_branch(constant, computed));
  CHECK(is_by_branch("param g: f32[n]\nparam o: f32[n]", computed));
  CHECK_FALSE(is_by_branch(constant, R"(
    registers r: f32[4]
    r[0 .. +4] = load g[cast<i64>(thread * 4) .. +4], proved
    store o[cast<i64>(thread * 4) .. +4] = r[0 .. +4], proved)"));
}

TEST_CASE("a narrow float is widened from the register that it shares with a neighbour",
          "[passes]") {
  const auto is_in_pair = [](const char* dtype, const char* how, const char* load) {
    const std::string body = fmt::format(R"(
    registers r: {}[4]
    {}
    x = load {}r[1])",
                                         dtype, how, load);
    const std::string memory = fmt::format("param g: {}[n], read only", dtype);
    codegen::Program program = read_body(64, memory.c_str(), body.c_str());
    codegen::choose_access_forms(program);
    return std::get<codegen::Load>(program.body[2].node).in_pair;
  };
  const char* vector = "r[0 .. +4] = load g[cast<i64>(thread * 4) .. +4], proved";
  CHECK(is_in_pair("bf16", vector, "at use "));
  CHECK(is_in_pair("e4m3", vector, "at use "));
  CHECK_FALSE(is_in_pair("f32", vector, "at use "));
  CHECK_FALSE(is_in_pair("bf16", vector, ""));
  CHECK_FALSE(is_in_pair("bf16", "r[0 .. +1] = load g[cast<i64>(thread)], proved", "at use "));
}

TEST_CASE("operands of products in an inner loop are computed where they are stored", "[passes]") {
  const auto is_kept = [](const char* head) {
    const std::string body = std::string(R"(
    registers a: f32[4]
    registers b: f32[2]
    registers c: f32[4] = 0
    x = load g[0], proved
    store a[0] = x
)") + head + "\n      c[0 .. +4] += mma a[0 .. +4] * b[0 .. +2]";
    codegen::Program program = read_body(64, "param g: f32[n], read only", body.c_str());
    codegen::choose_access_forms(program);
    return std::get<codegen::Store>(program.body[4].node).kept_for_loops;
  };
  CHECK(is_kept("    for i = 0; < n; += 1"));
  CHECK_FALSE(is_kept("    unrolled i = 0; < 4; += 1"));
  CHECK_FALSE(is_kept("    if thread < n"));
}
