// Roles that meet at mbarriers.

#include "tests/codegen/cpu/role_program.h"

namespace tessera::codegen::cpu {

TEST_CASE("an mbarrier orders what its arrivals follow before what its waits precede",
          "[cpu][roles][mbarrier]") {
  const auto body = [](const char* between) {
    return std::string(R"(
    if thread == 0
      mbarrier init b[0]
      mbarrier init b[1]
    barrier
    roles
      take: threads 32 .. +32
        for i = 0; < n; += 1
          mbarrier wait b[0], phase i
          x = load s[63 - thread], proved
          store out[cast<i64>(thread)] = x, proved
          mbarrier arrive b[1]
      fill: threads 0 .. +32
        for i = 0; < n; += 1
)") + between +
           R"(
          store s[thread] = thread + i, proved
          mbarrier arrive b[0])";
  };
  const std::string memory =
      std::string(kTile) + "\nshared b: u64[2] at byte 256, mbarriers of 32 arrivals";
  const std::string right = body("          mbarrier wait b[1], phase i - 1");
  const std::vector<int32_t> out = run(64, memory, right.c_str(), true, 6);
  for (int i = 32; i < 64; ++i) CHECK(out[static_cast<size_t>(i)] == 63 - i + 5);
  // The wait for the reads of the round before is missing.
  const Error error = trap_of(64, memory, body("          z = i").c_str(), 6);
  CHECK((error.code() == "RACE" || error.code() == "SIGNAL_PHASE"));
}

TEST_CASE("roles that wait at an mbarrier and at a named barrier are a deadlock",
          "[cpu][roles][mbarrier]") {
  const Error error = trap_of(64, "shared b: u64[1] at byte 0, mbarriers of 32 arrivals", R"(
    if thread == 0
      mbarrier init b[0]
    barrier
    roles
      wait: threads 0 .. +32
        mbarrier wait b[0], phase 0
        named barrier 1 of 64 threads
      meet: threads 32 .. +32
        named barrier 1 of 64 threads
        mbarrier arrive b[0])");
  CHECK(error.code() == "DEADLOCK");
  CHECK(error.fields().what ==
        "no thread of the block can go on: 'wait' (program:12) waits for phase 0 of b[0], with 32 "
        "of 32 arrivals and 0 bytes pending; 'meet' (program:15) waits at named barrier 1, where "
        "32 of 64 threads have come (thread 0, block (0, 0, 0))");
}

TEST_CASE("a role that did not wait for a bulk copy races with it", "[cpu][roles][mbarrier]") {
  const auto trap = [](const std::string& second) -> std::string {
    const std::string body = R"(
    if thread == 0
      mbarrier init b[0]
      mbarrier init b[1]
      proxy fence
    barrier
    roles
      load: threads 0 .. +32
        bulk copy s[0 .. +32] = g[cast<i64>(0) .. +32], proved, mbarrier b[0], expected
        if thread == 0
          mbarrier arrive b[0]
          mbarrier arrive b[1]
      first: threads 32 .. +32
        mbarrier wait b[0], phase 0
        x = load s[thread - 32], proved
      second: threads 64 .. +32
        )" + second + R"(
        y = load s[95 - thread], proved)";
    const Program program =
        test::read_body(96,
                        "param out: i32[128]\nparam g: i32[64], read only\n" + std::string(kTile) +
                            "\nshared b: u64[2] at byte 256, mbarriers of 1 arrivals",
                        body);
    std::vector<int32_t> out(128), g(64);
    const Argument arguments[] = {argument(1), argument(out, DType::i32), argument(g, DType::i32)};
    Options options;
    options.traps = true;
    try {
      Executable(program).run(arguments, options);
    } catch (const Error& error) {
      return error.code() + ": " + error.fields().what;
    }
    return "";
  };
  CHECK(trap("mbarrier wait b[0], phase 0") == "");
  // The other mbarrier says nothing of the copy.
  CHECK(has(trap("mbarrier wait b[1], phase 0"),
            "RACE: race on s[31]: read here and written by a bulk copy with no wait between"));
}

}  // namespace tessera::codegen::cpu
