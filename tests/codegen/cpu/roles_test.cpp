// Groups of threads that part: results, named barriers, and the traps between groups.

#include <algorithm>

#include "tests/codegen/cpu/role_program.h"

namespace tessera::codegen::cpu {

TEST_CASE("each role runs its own body, threads of no role go on", "[cpu][roles]") {
  const char* const body = R"(
    roles
      low: threads 0 .. +32 as t
        store out[cast<i64>(t)] = t, proved
      high: threads 64 .. +32 as t
        for i = 0; < n; += 1
          store out[cast<i64>(thread)] = 1000 + t, proved
    if thread < 8
      store out[cast<i64>(thread + 120)] = 7, proved)";
  for (const bool traps : {false, true}) {
    const std::vector<int32_t> out = run(128, "", body, traps);
    for (int i = 0; i < 120; ++i) {
      const int expected = i < 32 ? i : i >= 64 && i < 96 ? 1000 + i - 64 : -1;
      CHECK(out[static_cast<size_t>(i)] == expected);
    }
    CHECK(std::count(out.begin(), out.end(), 7) == 9);  // and the one of thread 7
  }
}

TEST_CASE("a named barrier orders two roles, whichever comes first", "[cpu][roles]") {
  for (const bool producer_first : {false, true}) {
    const std::string producer = R"(
      produce: threads 0 .. +32
        store s[thread] = thread * 3, proved
        named barrier 1 of 64 threads
)";
    const std::string consumer = R"(
      consume: threads 32 .. +32
        named barrier 1 of 64 threads
        x = load s[63 - thread], proved
        store out[cast<i64>(thread)] = x, proved
)";
    const std::string body =
        "\n    roles" + (producer_first ? producer + consumer : consumer + producer);
    const std::vector<int32_t> out = run(64, kTile, body.c_str());
    for (int i = 32; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] == (63 - i) * 3);
  }
}

TEST_CASE("two roles hand a tile back and forth through arrivals", "[cpu][roles]") {
  // Barrier 1: the tile is full, barrier 2: it is empty.
  const char* const body = R"(
    roles
      consume: threads 32 .. +32
        registers sum: i32[1] = 0
        arrive at named barrier 2 of 64 threads
        for i = 0; < n; += 1
          named barrier 1 of 64 threads
          x = load s[63 - thread], proved
          y = load sum[0]
          store sum[0] = x + y
          if i + 1 < n
            arrive at named barrier 2 of 64 threads
        z = load sum[0]
        store out[cast<i64>(thread)] = z, proved
      produce: threads 0 .. +32
        for i = 0; < n; += 1
          named barrier 2 of 64 threads
          store s[thread] = thread + i, proved
          arrive at named barrier 1 of 64 threads)";
  for (const bool traps : {false, true}) {
    const std::vector<int32_t> out = run(64, kTile, body, traps, 5);
    for (int i = 32; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] == 5 * (63 - i) + 10);
  }
}

TEST_CASE("roles that wait for each other are a deadlock that lists them", "[cpu][roles]") {
  const Error error = trap_of(96, kTile, R"(
    roles
      first: threads 0 .. +32
        named barrier 1 of 64 threads
      second: threads 32 .. +32
        named barrier 2 of 64 threads
      third: threads 64 .. +32
        store s[thread - 64] = 1, proved)");
  CHECK(error.code() == "DEADLOCK");
  CHECK(error.fields().what ==
        "no thread of the block can go on: 'first' (program:9) waits at named barrier 1, where 32 "
        "of 64 threads have come; 'second' (program:11) waits at named barrier 2, where 32 of 64 "
        "threads have come; 'third' has ended (thread 0, block (0, 0, 0))");
  CHECK(lines(error) == "program:9 program:11");
}

TEST_CASE("an access of another role that no barrier orders is a race", "[cpu][roles]") {
  const Error error = trap_of(64, kTile, R"(
    roles
      write: threads 0 .. +32
        store s[thread] = 1, proved
      read: threads 32 .. +32
        x = load s[thread - 32], proved
        store out[cast<i64>(thread)] = x, proved)");
  CHECK(error.code() == "RACE");
  CHECK(has(error.fields().what, "race on s[0]: read here and written by thread 0"));
  CHECK(lines(error) == "program:11 program:9");
}

TEST_CASE("an arrival orders what was before it, not what follows it", "[cpu][roles]") {
  const char* const body = R"(
    roles
      write: threads 0 .. +32
        store s[thread] = 1, proved
        arrive at named barrier 1 of 64 threads
        store s[thread + 32] = 2, proved
      read: threads 32 .. +32
        named barrier 1 of 64 threads
        x = load s[thread - 32], proved
        y = load s[thread], proved)";
  const Error error = trap_of(64, kTile, body);
  CHECK(error.code() == "RACE");
  CHECK(has(error.fields().what, "race on s[32]"));
}

TEST_CASE("a read of any of several roles keeps a write from them", "[cpu][roles]") {
  // Three roles read; the fourth writes when two or all of them have arrived.
  const auto body = [](const char* third) {
    return std::string(R"(
    if thread < 64
      store s[thread] = 0, proved
    barrier
    roles
      a: threads 0 .. +32
        x = load s[0], proved
        arrive at named barrier 1 of 64 threads
      b: threads 32 .. +32
        x = load s[0], proved
        arrive at named barrier 2 of 64 threads
      c: threads 64 .. +32
        x = load s[0], proved
        arrive at named barrier 3 of 64 threads
      d: threads 96 .. +32
        named barrier 1 of 64 threads
        named barrier 2 of 64 threads
)") + third +
           "        if thread == 96\n          store s[0] = 1, proved";
  };
  CHECK_NOTHROW(run(128, kTile, body("        named barrier 3 of 64 threads\n").c_str()));
  const std::string wrong = body("        arrive at named barrier 3 of 64 threads\n");
  const Error error = trap_of(128, kTile, wrong.c_str());
  CHECK(error.code() == "RACE");
  CHECK(has(error.fields().what, "race on s[0]: written here and read by thread 95"));
}

TEST_CASE("a role's own barrier orders its warps and no other role", "[cpu][roles]") {
  const char* const body = R"(
    roles
      two: threads 0 .. +64
        store s[thread] = thread, proved
        named barrier 1 of 64 threads
        x = load s[63 - thread], proved
        store out[cast<i64>(thread)] = x, proved
      other: threads 64 .. +32
        y = thread)";
  const std::vector<int32_t> out = run(96, kTile, body);
  for (int i = 0; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] == 63 - i);
  const Error error = trap_of(96, kTile, R"(
    roles
      two: threads 0 .. +64
        store s[thread] = thread, proved
        named barrier 1 of 64 threads
      other: threads 64 .. +32
        x = load s[thread - 64], proved)");
  CHECK(error.code() == "RACE");
}

TEST_CASE("named barriers that threads and counts do not fit are traps", "[cpu][roles]") {
  const auto refused = [](const char* body) {
    const Error error = trap_of(96, kTile, body);
    CHECK(error.code() == "ROLE_BARRIER");
    return error.fields().what + " " + error.expected() + " / " + error.got();
  };
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        named barrier 1 of 64 threads
      b: threads 32 .. +64
        named barrier 1 of 96 threads)"),
            "named barrier 1 has two counts at one meeting"));
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        named barrier 1 of 64 threads
      b: threads 32 .. +64
        named barrier 1 of 64 threads)"),
            "named barrier 1 is met by more threads than it counts"));
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        if thread < 16
          named barrier 1 of 32 threads)"),
            "named barrier 1 is reached by a part of warp 0"));
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        arrive at named barrier 1 of 64 threads
        arrive at named barrier 1 of 64 threads)"),
            "named barrier 1 is met twice by warp 0 before the others come"));
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        arrive at named barrier 1 of 64 threads)"),
            "the roles end while named barrier 1 waits for threads"));
  CHECK(has(refused(R"(
    roles
      a: threads 0 .. +32
        named barrier 1 of 32 threads
      b: threads 32 .. +32
        named barrier 1 of 32 threads)"),
            "named barrier 1 is met again while warp 0 may not have come to the meeting before"));
}

TEST_CASE("an arrival that may overtake the meeting before is a trap in every order",
          "[cpu][roles]") {
  for (const bool waiter_first : {false, true}) {
    const std::string waiter = R"(
      wait: threads 32 .. +32
        named barrier 1 of 64 threads
        named barrier 1 of 64 threads)";
    const std::string other = R"(
      arrive: threads 0 .. +32
        arrive at named barrier 1 of 64 threads
        arrive at named barrier 1 of 64 threads)";
    const std::string body = "\n    roles" + (waiter_first ? waiter + other : other + waiter);
    CHECK(trap_of(64, kTile, body.c_str()).code() == "ROLE_BARRIER");
  }
}

TEST_CASE("a barrier of the block in a role is divergent", "[cpu][roles]") {
  const Error error = trap_of(64, kTile, R"(
    roles
      a: threads 0 .. +32
        barrier)");
  CHECK(error.code() == "DIVERGENT_BARRIER");
}

TEST_CASE("a loop of a role has its own counter and registers", "[cpu][roles]") {
  // Both roles stop in the middle of a loop, with live values.
  const char* const body = R"(
    roles
      a: threads 0 .. +32
        registers r: i32[1] = 0
        for i = 0; < 7; += 1
          named barrier 1 of 64 threads
          x = load r[0]
          store r[0] = x + i
        y = load r[0]
        store out[cast<i64>(thread)] = y, proved
      b: threads 32 .. +32
        registers r: i32[1] = 0
        for i = 10; < 17; += 1
          x = load r[0]
          store r[0] = x + i
          named barrier 1 of 64 threads
        y = load r[0]
        store out[cast<i64>(thread)] = y, proved)";
  const std::vector<int32_t> out = run(64, kTile, body);
  CHECK(out[0] == 21);
  CHECK(out[63] == 91);
}

TEST_CASE("results and traps do not depend on the schedule", "[cpu][roles]") {
  const char* const sound = R"(
    roles
      a: threads 0 .. +32
        for i = 0; < n; += 1
          named barrier 2 of 64 threads
          store s[thread] = thread + i, proved
          arrive at named barrier 1 of 64 threads
      b: threads 32 .. +32
        for i = 0; < n; += 1
          arrive at named barrier 2 of 64 threads
          named barrier 1 of 64 threads
          x = load s[63 - thread], proved
          store out[cast<i64>(thread)] = x, proved
      c: threads 64 .. +32
        store out[cast<i64>(thread)] = 7, proved)";
  const char* const race = R"(
    roles
      a: threads 0 .. +32
        store s[thread] = 1, proved
        arrive at named barrier 1 of 64 threads
        store s[thread] = 2, proved
      b: threads 32 .. +32
        named barrier 1 of 64 threads
        x = load s[thread - 32], proved
      c: threads 64 .. +32
        y = thread)";
  for (uint32_t seed = 1; seed <= 16; ++seed) {
    CAPTURE(seed);
    const std::vector<int32_t> out = run(96, kTile, sound, true, 5, seed);
    for (int i = 32; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] == 63 - i + 4);
    CHECK(out[95] == 7);
    CHECK(trap_of(96, kTile, race, 1, seed).code() == "RACE");
  }
}

}  // namespace tessera::codegen::cpu
