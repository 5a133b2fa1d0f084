// insert_barriers on small programs of the thread IR.

#include "codegen/passes/insert_barriers.h"

#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using test::read_body;

namespace {

/// The body with its barriers.
std::string with_barriers(int threads, const char* memory, const char* body) {
  codegen::Program program = read_body(threads, memory, body);
  codegen::insert_barriers(program, {});
  return test::body_text(program);
}
constexpr const char* kTile = "shared s: i32[64] at byte 0";

}  // namespace

TEST_CASE("a read of another thread's element waits for its write", "[barriers]") {
  CHECK(with_barriers(64, kTile, R"(
    store s[thread] = thread, proved
    x = load s[63 - thread], proved)") ==
        "store s[thread] = thread, proved\n"
        "barrier\n"
        "x = load s[63 - thread], proved\n");
}

TEST_CASE("a thread's own element, and constant memory, need no barrier", "[barriers]") {
  const char* const body = R"(
    store s[thread] = thread, proved
    x = load s[thread], proved)";
  CHECK(with_barriers(64, kTile, body) ==
        "store s[thread] = thread, proved\nx = load s[thread], proved\n");
}

TEST_CASE("threads of one warp get a warp barrier", "[barriers]") {
  CHECK(with_barriers(64, kTile, R"(
    store s[thread] = thread, proved
    x = load s[thread ^ 1], proved)") ==
        "store s[thread] = thread, proved\n"
        "warp barrier\n"
        "x = load s[thread ^ 1], proved\n");
}

TEST_CASE("a loop orders its rounds, two halves of a double buffer need one barrier",
          "[barriers]") {
  CHECK(with_barriers(64, kTile, R"(
    for i = 0; < n; += 1
      store s[thread] = i, proved
      x = load s[63 - thread], proved)") ==
        "for i = 0; < n; += 1\n"
        "  barrier\n"
        "  store s[thread] = i, proved\n"
        "  barrier\n"
        "  x = load s[63 - thread], proved\n");
  CHECK(with_barriers(32, "shared s: i32[128] at byte 0", R"(
    for i = 0; < n; += 1
      store s[i % 2 * 64 + thread] = i, proved
      x = load s[i % 2 * 64 + 31 - thread], proved)") ==
        "for i = 0; < n; += 1\n"
        "  store s[i % 2 * 64 + thread] = i, proved\n"
        "  warp barrier\n"
        "  x = load s[i % 2 * 64 + 31 - thread], proved\n");
}

TEST_CASE("what is in flight lands at the wait, not before", "[barriers]") {
  CHECK(with_barriers(64, "param g: i32[64], read only\nshared s: i32[64] at byte 0", R"(
    async copy s[thread] = g[cast<i64>(thread)], proved
    commit
    y = thread
    wait until 0 groups pending
    x = load s[63 - thread], proved)") ==
        "async copy s[thread] = g[cast<i64>(thread)], proved\n"
        "commit\n"
        "y = thread\n"
        "wait until 0 groups pending\n"
        "barrier\n"
        "x = load s[63 - thread], proved\n");
}

TEST_CASE("what a matrix load names belongs to the whole warp", "[barriers]") {
  CHECK(with_barriers(32, "shared s: bf16[256] at byte 0", R"(
    registers r: bf16[8]
    store s[thread * 8] = 1, proved
    r[0 .. +8] = load 4 matrices s[thread * 8 .. +8], proved)") ==
        "registers r: bf16[8]\n"
        "store s[thread * 8] = 1, proved\n"
        "warp barrier\n"
        "r[0 .. +8] = load 4 matrices s[thread * 8 .. +8], proved\n");
}

TEST_CASE("arrays that share the arena are ordered", "[barriers]") {
  CHECK(with_barriers(64, "shared a: i32[64] at byte 0\nshared b: i32[64] at byte 128", R"(
    store a[thread] = 1, proved
    store b[thread] = 2, proved)") ==
        "store a[thread] = 1, proved\n"
        "barrier\n"
        "store b[thread] = 2, proved\n");
}

TEST_CASE("the author's barriers count, those of a manual region stand alone", "[barriers]") {
  const char* const ordered =
      "store s[thread] = thread, proved\nbarrier\nx = load s[63 - thread], proved\n";
  CHECK(with_barriers(64, kTile, ordered) == ordered);
  const char* const manual =
      "store s[thread] = thread, proved; manual\nx = load s[63 - thread], proved; manual\n";
  CHECK(with_barriers(64, kTile, manual) == manual);
}

TEST_CASE("a barrier under a condition of the threads is refused with both places", "[barriers]") {
  codegen::Program program = read_body(64, kTile, R"(
    if thread < 40
      store s[thread] = thread, proved
      x = load s[39 - thread], proved)");
  const std::string text = test::error_of([&] { codegen::insert_barriers(program, {}); });
  CHECK(text.find("shared 's' needs a barrier under a condition that differs between threads") !=
        std::string::npos);
  CHECK(text.find("'thread' is another in each thread") != std::string::npos);
}
