// add_mbarriers and lower_bulk_copies on small programs.

#include "codegen/passes/arrange_shared.h"
#include "codegen/passes/lower_bulk_copies.h"
#include "codegen/passes/place_arena.h"
#include "codegen/verify/thread_ir.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using namespace tessera::codegen;
using test::body_text;
using test::read_body;

namespace {

constexpr const char* kMemory = "param g: i32[64], read only\nshared s: i32[64] at byte 0";
constexpr const char* kCopy =
    "bulk copy s[0 .. +64] at [0] = g[cast<i64>(0) .. +64], proved\ncommit\n";

/// `body` of a program of 32 threads with 3 mbarriers, lowered.
Program lowered(const std::string& body) {
  Program program = read_body(
      32, std::string(kMemory) + "\nshared mbarriers: u64[3] at byte 256, mbarriers of 1 arrivals",
      body);
  lower_bulk_copies(program);
  verify(program, {}, {.is_shared_placed = true, .are_bulk_copies_lowered = true},
         "lower_bulk_copies");
  return program;
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("bulk copies get as many mbarriers as groups may be in flight, and one", "[passes]") {
  const auto mbarriers = [](const std::string& body) -> const ArrayRef {
    Program program = read_body(96, kMemory, body);
    add_mbarriers(program);
    return program.shared.size() == 1 ? nullptr : program.shared.back();
  };
  const ArrayRef found = mbarriers(std::string(kCopy) + "wait until 1 groups pending");
  REQUIRE(found);
  CHECK(found->is_mbarriers());
  CHECK(found->size == 3);
  CHECK(found->arrivals == 3);  // warps
  CHECK(mbarriers(std::string(kCopy) + "wait until 0 groups pending")->size == 2);
  CHECK(mbarriers(std::string(kCopy) + "wait until 100 groups pending")->size == 16);
  CHECK(mbarriers("x = load s[thread], proved") == nullptr);
}

TEST_CASE("mbarriers stand behind all other shared memory", "[passes]") {
  Program program = read_body(32, "param g: i32[63], read only\nshared s: i32[63] at byte 0", R"(
    bulk copy s[open .. +4] at [0] = g[cast<i64>(0) .. +4], proved
    commit
    wait until 0 groups pending)");
  add_mbarriers(program);
  arrange_shared(program);
  place_arena(program);
  REQUIRE(program.shared.size() == 2);
  CHECK(program.shared[1]->shared_offset == 256);
  CHECK(program.shared_bytes == 256 + 2 * 8);
}

TEST_CASE("groups of bulk copies become phases of mbarriers", "[passes]") {
  CHECK(body_text(lowered(std::string(kCopy) + "wait until 0 groups pending\n")) ==
        R"(if thread == 0
  mbarrier init mbarriers[0 .. +3]
  proxy fence
barrier
registers committed: u32[1] = 0
registers awaited: u32[1] = 0
group = load committed[0]
bulk copy s[0 .. +64] = g[0 .. +64], proved, mbarrier mbarriers[cast<i32>(group % 3)], expected
group.2 = load committed[0]
if thread % 32 == 0
  mbarrier arrive mbarriers[cast<i32>(group.2 % 3)]
store committed[0] = group.2 + 1
first = load awaited[0]
mbarrier wait mbarriers[cast<i32>(first % 3)], phase first / 3
store awaited[0] = first + 1
)");
}

TEST_CASE("a wait for an unknown number of groups is a loop", "[passes]") {
  const std::string text = body_text(lowered(R"(
    bulk copy s[0 .. +64] at [0] = g[cast<i64>(0) .. +64], proved
    commit
    if n < 3
      commit
    wait until 1 groups pending)"));
  CHECK(has(text, R"(
first = load awaited[0]
all = load committed[0]
for group.3 = first; < max(all, 1) - 1; += 1
  mbarrier wait mbarriers[cast<i32>(group.3 % 3)], phase group.3 / 3
store awaited[0] = max(first, max(all, 1) - 1)
)"));
}

TEST_CASE("a commit waits where its mbarrier may not be free", "[passes]") {
  const auto waits = [](const char* body) {
    return has(body_text(lowered(body)), "mbarrier wait");
  };
  CHECK(!waits("commit\ncommit"));
  CHECK(waits("commit\ncommit\ncommit"));
  CHECK(waits("for i = 0; < n; += 1\n  commit"));
}

TEST_CASE("copies in pieces keep their groups beside bulk copies", "[passes]") {
  const std::string text = body_text(lowered(R"(
    async copy s[thread] = g[cast<i64>(thread)], proved
    bulk copy s[0 .. +64] at [0] = g[cast<i64>(0) .. +64], proved
    commit
    wait until 0 groups pending)"));
  CHECK(has(text, "\ncommit\n"));
  CHECK(has(text, "\nwait until 0 groups pending\n"));
}

TEST_CASE("a bulk copy with a guard stores zeros where the guard is false", "[passes]") {
  const std::string text = body_text(lowered(R"(
    bulk copy s[0 .. +64] at [0] = g[cast<i64>(0) .. +64], guarded, if n < 3
    commit
    wait until 0 groups pending)"));
  CHECK(has(text, "\nguard n < 3\n"));
  CHECK(has(text, R"(
else
  registers zeros: i32[4] = 0
  for round = 0; < 1; += 1
    store s[thread % 32 * 4 + round * 128 .. +4] = zeros[0 .. +4] at [thread % 32 * 4 + round * 128], proved, if thread % 32 * 4 + round * 128 < 64
  proxy fence
)"));
}

TEST_CASE("threads that leave wait for their bulk copies", "[passes]") {
  const std::string text =
      body_text(lowered(std::string(kCopy) + "return if n < 3\nwait until 0 groups pending\n"));
  CHECK(has(text, R"(if n < 3
  first = load awaited[0]
  mbarrier wait mbarriers[cast<i32>(first % 3)], phase first / 3
  store awaited[0] = first + 1
  return if 1
)"));
}

TEST_CASE("barriers between stores and bulk copies get a proxy fence", "[passes]") {
  const auto fences = [](const std::string& body) {
    return has(body_text(lowered(body)), "proxy fence\nwarp barrier\n");
  };
  const std::string store = "store s[thread] = 1, proved\n";
  const std::string barrier = "warp barrier\n";
  const std::string copy = std::string(kCopy) + "wait until 0 groups pending\n";
  CHECK(fences(store + barrier + copy));
  CHECK(!fences(copy + barrier + store));
  CHECK(!fences(copy + barrier));
  CHECK(fences(R"(
    for i = 0; < n; += 1
      bulk copy s[0 .. +64] at [0] = g[cast<i64>(0) .. +64], proved
      commit
      wait until 0 groups pending
      store s[thread] = 1, proved
    warp barrier)"));
}
