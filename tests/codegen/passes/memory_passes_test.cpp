// arrange_shared, place_arena, place_declarations, insert_cluster_exit_barrier and check_convergence on small programs of the thread IR.

#include <fmt/format.h>

#include "codegen/passes/arrange_shared.h"
#include "codegen/passes/check_convergence.h"
#include "codegen/passes/insert_cluster_exit_barrier.h"
#include "codegen/passes/place_arena.h"
#include "codegen/passes/place_declarations.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using test::body_text;
using test::read_body;

namespace {

/// The offsets and the arena that the two passes choose.
std::string placed(int threads, const char* memory, const char* body) {
  codegen::Program program = read_body(threads, memory, body);
  codegen::arrange_shared(program);
  const std::vector<std::string> notes = codegen::place_arena(program);
  std::string text = body_text(program);
  for (const std::string& note : notes) text += note.substr(note.find("shared")) + "\n";
  return text;
}
std::string refusal(codegen::Program program) {
  return test::error_of([&] { codegen::check_convergence(program, {}); });
}

}  // namespace

TEST_CASE("rows that are read as they are written stay plain", "[passes]") {
  CHECK(placed(32, "shared s: f32[4, 32]", R"(
    for i = 0; < 4; += 1
      store s[open] = 1 at [i, thread], proved)") ==
        "for i = 0; < 4; += 1\n"
        "  store s[thread + i * 32] = 1 at [i, thread], proved\n"
        "shared 's' at byte 0: rows 32 elements apart\n");
}

TEST_CASE("columns that would meet in one bank are exchanged or padded apart", "[passes]") {
  const std::string exchanged = placed(32, "shared s: f32[32, 32]", R"(
    store s[open] = 1 at [thread, 0], proved
    x = load s[open] at [0, thread], proved)");
  CHECK(exchanged.find("16-byte chunks exchanged by xor") != std::string::npos);
  const std::string padded = placed(32, "shared s: f32[32, 48]", R"(
    store s[open] = 1 at [thread, 0], proved)");
  CHECK(padded.find("rows 49 elements apart") != std::string::npos);
}

TEST_CASE("the threads of a role decide the arrangement of what it uses", "[passes][roles]") {
  const std::string exchanged = placed(96, "shared s: f32[32, 32]", R"(
    roles
      a: threads 32 .. +64 as t
        store s[open] = 1 at [t % 32, 0], proved
        x = load s[open] at [0, t % 32], proved)");
  CHECK(exchanged.find("16-byte chunks exchanged by xor") != std::string::npos);
}

TEST_CASE("arrays overlap in the arena where it would cost blocks, if they are not used together",
          "[passes]") {
  const std::string text = placed(32, "shared a: f32[16384]\nshared b: f32[16384]", R"(
    store a[open] = 1 at [thread], proved
    store b[open] = 2 at [thread], proved)");
  CHECK(text.find("shared 'b' at byte 0, after 'a':") != std::string::npos);
  const std::string small = placed(32, "shared a: f32[64]\nshared b: f32[64]", R"(
    store a[open] = 1 at [thread], proved
    store b[open] = 2 at [thread], proved)");
  CHECK(small.find("shared 'b' at byte 256:") != std::string::npos);
}

TEST_CASE("an arena beyond what a block may have is refused", "[passes]") {
  codegen::Program program =
      read_body(32, "shared a: f32[60000]", "store a[open] = 1 at [thread], proved");
  codegen::arrange_shared(program);
  const std::string text = test::error_of([&] { codegen::place_arena(program); });
  CHECK(text.find("the block needs more shared memory than there is") != std::string::npos);
  CHECK(text.find("SMEM_LIMIT") != std::string::npos);
}

TEST_CASE("the room of an arena is that of the target, which the error names", "[passes]") {
  // 156 KiB: more than a block of sm_89 or sm_120 may have.
  for (const char* name : {"sm_80", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a"}) {
    codegen::Program program =
        read_body(32, "shared a: f32[40000]", "store a[open] = 1 at [thread], proved");
    program.target = parse_target(name).value();
    codegen::arrange_shared(program);
    const std::string text = test::error_of([&] { codegen::place_arena(program); });
    CAPTURE(name, text);
    const bool is_small = name == std::string("sm_89") || name == std::string("sm_120a");
    CHECK(text.empty() == !is_small);
    if (!is_small) continue;
    CHECK(text.find(fmt::format("expected  at most 101376 bytes on {}", name)) !=
          std::string::npos);
    CHECK(text.find("a 160000 bytes") != std::string::npos);
  }
}

TEST_CASE("arrays overlap where that lets more blocks run on the target", "[passes]") {
  // 2 x 52 KiB and 1024 threads: sm_90 runs two such blocks at once, sm_80 only one, sm_120 none.
  const auto arena_on = [](const char* name) {
    codegen::Program program = read_body(1024, "shared a: f32[13312]\nshared b: f32[13312]", R"(
    store a[open] = 1 at [thread], proved
    store b[open] = 2 at [thread], proved)");
    program.target = parse_target(name).value();
    codegen::arrange_shared(program);
    codegen::place_arena(program);
    return program.shared_bytes / 1024;
  };
  CHECK(arena_on("sm_90a") == 104);
  CHECK(arena_on("sm_80") == 52);
  CHECK(arena_on("sm_120a") == 52);
}

TEST_CASE("registers are declared once, before the comment of their first statement", "[passes]") {
  codegen::Program program =
      read_body(32, "undeclared registers r: f32[2]\nundeclared registers t: f32[1]", R"(
    x = thread
    # fill r
    if x < 3
      store r[0] = 1
    store r[1] = 2
    store t[0] = 3)");
  codegen::place_declarations(program);
  CHECK(body_text(program) ==
        "x = thread\n"
        "registers r: f32[2]\n"
        "# fill r\n"
        "if x < 3\n"
        "  store r[0] = 1\n"
        "store r[1] = 2\n"
        "registers t: f32[1]\n"
        "store t[0] = 3\n");
}

TEST_CASE("blocks of a cluster wait for each other after the last access to a view", "[passes]") {
  const char* const memory = "shared s: i32[32] at byte 0";
  codegen::Program program = read_body(32, memory, R"(
    pointer theirs: s of block 1 of the cluster
    x = load theirs[thread], proved
    y = x)");
  codegen::insert_cluster_exit_barrier(program);
  CHECK(body_text(program) ==
        "pointer theirs: s of block 1 of the cluster\n"
        "x = load theirs[thread], proved\n"
        "arrive at the cluster barrier\n"
        "y = x\n"
        "wait at the cluster barrier\n");
  const char* const met =
      "pointer theirs: s of block 1 of the cluster\n"
      "x = load theirs[thread], proved\n"
      "cluster barrier\n";
  program = read_body(32, memory, met);
  codegen::insert_cluster_exit_barrier(program);
  CHECK(body_text(program) == met);
}

TEST_CASE("threads that may have left are told apart at what waits for them", "[passes]") {
  const char* const kinds[] = {"barrier", "warp barrier", "v = ballot(thread < 3)",
                               "cluster barrier"};
  for (const char* kind : kinds) {
    CAPTURE(kind);
    const auto after = [&](const std::string& leave) {
      return refusal(read_body(64, "", leave + "\n" + kind));
    };
    CHECK(after("return if thread < 3").find("RETURN_BEFORE_BARRIER") != std::string::npos);
    const bool of_cluster = std::string(kind) == "cluster barrier";
    CHECK(after("return if block_x < 3").empty() != of_cluster);
  }
  CHECK(refusal(read_body(64, "", "barrier\nreturn if thread < 3")).empty());
  // A round meets what the one before left behind.
  CHECK(refusal(read_body(64, "", R"(
    for i = 0; < n; += 1
      barrier
      return if thread < i)"))
            .find("RETURN_BEFORE_BARRIER") != std::string::npos);
}

TEST_CASE("registers that one role names are declared in it", "[passes][roles]") {
  codegen::Program program =
      read_body(96,
                "undeclared registers both: i32[1]\nundeclared registers own: i32[2]\n"
                "undeclared registers later: i32[1]",
                R"(
    roles
      a: threads 0 .. +32
        store both[0] = 1
        store own[0] = 2
        store later[0] = 3
      b: threads 32 .. +64
        store both[0] = 4
    x = load later[0])");
  codegen::place_declarations(program);
  CHECK(body_text(program) ==
        "registers both: i32[1]\n"
        "registers later: i32[1]\n"
        "roles\n"
        "  a: threads 0 .. +32\n"
        "    store both[0] = 1\n"
        "    registers own: i32[2]\n"
        "    store own[0] = 2\n"
        "    store later[0] = 3\n"
        "  b: threads 32 .. +64\n"
        "    store both[0] = 4\n"
        "x = load later[0]\n");
}

TEST_CASE("a role's barrier after threads have left is refused", "[passes][roles]") {
  const std::string text = refusal(read_body(96, "", R"(
    return if thread < 3
    roles
      a: threads 0 .. +64
        named barrier 1 of 64 threads)"));
  CHECK(text.find("RETURN_BEFORE_BARRIER") != std::string::npos);
}
