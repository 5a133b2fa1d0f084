// Targets: parsing, choice for a device, compatibility.

#include "runtime/nvrtc/target.h"

#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;

TEST_CASE("targets are parsed and printed") {
  for (const char* word : {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120f"}) {
    REQUIRE(parse_target(word));
    CHECK(to_string(*parse_target(word)) == word);
  }
  CHECK(parse_target("sm_103a") == Target{10, 3, 'a'});
  for (const char* word : {"", "sm_", "90a", "sm_9", "sm_90b", "sm_a", "sm_090", "sm_90aa", "SM_90",
                           "sm_-90", "sm_90 ", "sm_99999999999"}) {
    CAPTURE(word);
    CHECK_FALSE(parse_target(word));
  }
}

TEST_CASE("targets that are too old or do not exist are unsupported") {
  const auto check = [](const char* word) {
    try {
      check_supported(*parse_target(word), "scale");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::unsupported);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const char* word : {"sm_80", "sm_90", "sm_90a", "sm_100f", "sm_121a"}) {
    CHECK(check(word) == "no error");
  }
  for (const char* word : {"sm_75", "sm_52", "sm_80a", "sm_89a", "sm_90f"}) {
    CAPTURE(word);
    CHECK(check(word) == "tessera: scale: no kernel can be made for " + std::string(word) +
                             "\n"
                             "  expected  sm_80 or newer; the letter a from sm_90a on, f from "
                             "sm_100f on\n"
                             "  got       " +
                             word);
  }
}

TEST_CASE("the target is the device's own, with its letter from 9.0 on") {
  const std::vector<int> supported = {80, 86, 89, 90, 100, 120};
  CHECK(to_string(choose_target(8, 0, supported, "NVRTC")) == "sm_80");
  CHECK(to_string(choose_target(8, 9, supported, "NVRTC")) == "sm_89");
  CHECK(to_string(choose_target(9, 0, supported, "NVRTC")) == "sm_90a");
  CHECK(to_string(choose_target(12, 0, supported, "NVRTC")) == "sm_120a");
  try {
    choose_target(10, 3, supported, "NVRTC 12.4 (/x/libnvrtc.so.12)");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK(std::string(error.what()) ==
          "tessera: NVRTC 12.4 (/x/libnvrtc.so.12) cannot compile for this device\n"
          "  expected  one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120\n"
          "  got       sm_103a (compute capability 10.3)\n"
          "  hint      install an NVRTC that knows this device, or name one with TESSERA_NVRTC");
  }
}

TEST_CASE("a cubin runs where its target says") {
  CHECK(runs_on({8, 0, 0}, 8, 9));
  CHECK_FALSE(runs_on({8, 9, 0}, 8, 0));
  CHECK_FALSE(runs_on({8, 0, 0}, 9, 0));
  CHECK(runs_on({9, 0, 'a'}, 9, 0));
  CHECK_FALSE(runs_on({10, 0, 'a'}, 10, 3));
  CHECK(runs_on({10, 0, 'f'}, 10, 3));
}
