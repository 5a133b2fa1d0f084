// insert_barriers on small programs of the thread IR.

#include "codegen/passes/insert_barriers.h"

#include <fmt/format.h>

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

TEST_CASE("a role gets barriers of its own threads, with an id that is free", "[barriers][roles]") {
  CHECK(with_barriers(128, kTile, R"(
    roles
      load: threads 0 .. +32
        arrive at named barrier 1 of 128 threads
      compute: threads 32 .. +64 as t
        store s[t] = t, proved
        x = load s[63 - t], proved
        store s[t] = x, proved
      other: threads 96 .. +32 as u
        y = u)") ==
        "roles\n"
        "  load: threads 0 .. +32\n"
        "    arrive at named barrier 1 of 128 threads\n"
        "  compute: threads 32 .. +64 as t\n"
        "    store s[t] = t, proved\n"
        "    named barrier 2 of 64 threads\n"
        "    x = load s[63 - t], proved\n"
        "    named barrier 2 of 64 threads\n"
        "    store s[t] = x, proved\n"
        "  other: threads 96 .. +32 as u\n"
        "    y = u\n");
}

TEST_CASE("a role of one warp needs warp barriers only", "[barriers][roles]") {
  CHECK(with_barriers(64, kTile, R"(
    roles
      one: threads 32 .. +32
        store s[thread] = thread, proved
        x = load s[95 - thread], proved)") ==
        "roles\n"
        "  one: threads 32 .. +32\n"
        "    store s[thread] = thread, proved\n"
        "    warp barrier\n"
        "    x = load s[95 - thread], proved\n");
}

TEST_CASE("what the block wrote before its roles is ordered by a barrier of the block",
          "[barriers][roles]") {
  CHECK(with_barriers(64, kTile, R"(
    store s[thread] = thread, proved
    roles
      a: threads 0 .. +32
        x = load s[63 - thread], proved
      b: threads 32 .. +32
        y = load s[63 - thread], proved
    store s[thread] = 0, proved)") ==
        "store s[thread] = thread, proved\n"
        "barrier\n"
        "roles\n"
        "  a: threads 0 .. +32\n"
        "    x = load s[63 - thread], proved\n"
        "  b: threads 32 .. +32\n"
        "    y = load s[63 - thread], proved\n"
        "barrier\n"
        "store s[thread] = 0, proved\n");
}

TEST_CASE("a barrier that all threads of a role pass is not repeated", "[barriers][roles]") {
  const auto body = [](int counted) {
    return fmt::format(
        "roles\n"
        "  two: threads 0 .. +64\n"
        "    store s[thread] = thread, proved\n"
        "    named barrier 3 of {} threads\n"
        "    x = load s[63 - thread], proved\n",
        counted);
  };
  CHECK(with_barriers(96, kTile, body(64).c_str()) == body(64));
  CHECK(with_barriers(96, kTile, body(96).c_str()) == body(96));
  // Not all of them come to this one.
  CHECK(with_barriers(96, kTile, body(32).c_str()).find("named barrier 1 of 64") !=
        std::string::npos);
}

TEST_CASE("a role that parts its threads cannot have its barrier", "[barriers][roles]") {
  const std::string text = test::error_of([&] {
    with_barriers(128, kTile, R"(
      roles
        load: threads 0 .. +32
          z = thread
        compute: threads 64 .. +64 as t
          if t < 40
            store s[t] = t, proved
            x = load s[63 - t], proved)");
  });
  CHECK(text.find("expected  conditions and loop bounds that are the same for the whole role "
                  "'compute'") != std::string::npos);
}

TEST_CASE("the sixteenth named barrier is refused", "[barriers][roles]") {
  std::string body;
  for (int id = 1; id <= 15; ++id)
    body += fmt::format("arrive at named barrier {} of 64 threads\n", id);
  body +=
      "roles\n"
      "  two: threads 0 .. +64\n"
      "    store s[thread] = thread, proved\n"
      "    x = load s[63 - thread], proved\n";
  const std::string text = test::error_of([&] { with_barriers(96, kTile, body.c_str()); });
  CHECK(text.find("role 'two' needs one more named barrier") != std::string::npos);
  CHECK(text.find("NAMED_BARRIERS") != std::string::npos);
}
