#include "runtime/driver/device_timer.h"

#include "tests/support/catch.h"
#include "tools/lib/bench/bench.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

using runtime::Activity;
using runtime::activity_per_call;
using Kind = Activity::Kind;

TEST_CASE("activity between two flushes belongs to one call", "[bench]") {
  const std::vector<Activity> activities = {
      {Kind::kernel, 0, 900, 0},        // before the first flush: warm-up
      {Kind::fill, 1000, 2000, 512},    // flush
      {Kind::kernel, 2000, 5000, 0},    // call 1: a kernel,
      {Kind::fill, 5100, 5600, 64},     // its own fill
      {Kind::copy, 5700, 5950, 64},     // and a copy
      {Kind::fill, 6000, 7000, 512},    // flush
      {Kind::kernel, 7000, 8500, 0},    // call 2
      {Kind::fill, 9000, 10000, 512}};  // flush, and a call that launched nothing
  CHECK(activity_per_call(activities, 512) == std::vector<double>{3.75, 1.5, 0.0});
  CHECK(activity_per_call({}, 512).empty());
}

TEST_CASE("a kernel that begins early counts from the end of the one before", "[bench]") {
  const std::vector<Activity> activities = {
      {Kind::fill, 1000, 2000, 512},
      {Kind::kernel, 2000, 5000, 0},
      {Kind::kernel, 2500, 6000, 0},  // waits for the first one
      {Kind::kernel, 3000, 5500, 0},  // inside of it
      {Kind::kernel, 7000, 7500, 0}};
  CHECK(activity_per_call(activities, 512) == std::vector<double>{4.5});
}

TEST_CASE("tables line up", "[bench]") {
  TextTable table({{"op", Align::left}, {"us", Align::right}});
  table.row({"transpose", "1.5"});
  table.row({"x", "10.25"});
  CHECK(table.text() ==
        "op            us\n"
        "---------  -----\n"
        "transpose    1.5\n"
        "x          10.25\n");
}

TEST_CASE("a heading stands above its rows and widens no column", "[bench]") {
  TextTable table({{"kernel", Align::left}, {"us", Align::right}});
  table.heading("a case of many words: no trap");
  table.row({"  first", "1.5"});
  table.heading("one without rows");
  CHECK(table.text() ==
        "kernel    us\n"
        "-------  ---\n"
        "a case of many words: no trap\n"
        "  first  1.5\n"
        "one without rows\n");
  CHECK(table.text(20).find("\na case of many\n    words: no trap\n  first  1.5\n") !=
        std::string::npos);
  CHECK(table.json().find("many words") == std::string::npos);
}

TEST_CASE("a table wider than the terminal folds its rows", "[bench]") {
  TextTable table(
      {{"op", Align::left}, {"case", Align::left}, {"us", Align::right}, {"GB/s", Align::right}});
  table.row({"transpose", "8064 x 7168", "1.5", "3986"});
  table.row({"x", "1 x 1", "10.25", "7"});
  CHECK(table.text(25) ==
        "op         case\n"
        "       us  GB/s\n"
        "---------  -----------\n"
        "    -----  ----\n"
        "transpose  8064 x 7168\n"
        "      1.5  3986\n"
        "x          1 x 1\n"
        "    10.25     7\n");
  CHECK(table.text(10).find("\ntranspose\n    8064 x 7168\n      1.5\n    3986\n") !=
        std::string::npos);
}

TEST_CASE("the benchmark table shows copy, stream and peer", "[bench]") {
  BenchResult r;
  r.op = "transpose";
  r.label = "8064 x 7168 bf16";
  r.bytes = 231'211'008;
  r.timing = {58.0, 0.004, 200};
  r.gbs = 3986;
  r.copy_gbs = 4000;
  r.stream_us = 57.42;
  r.peer_us = 59.33;
  r.peer_scaled_us = 58.9;
  BenchResult without = r;
  without.peer_us.reset();
  without.peer_scaled_us.reset();
  CHECK(bench_table({r, without}) ==
        "op         case                 us  spread  GB/s  copy  % of copy  % of stream  peer us  "
        "scaled  peer/us\n"
        "---------  ----------------  -----  ------  ----  ----  ---------  -----------  -------  "
        "------  -------\n"
        "transpose  8064 x 7168 bf16  58.00   0.4 %  3986  4000       99.7         99.0    59.33   "
        "58.90     1.02\n"
        "transpose  8064 x 7168 bf16  58.00   0.4 %  3986  4000       99.7         99.0        -   "
        "    -        -\n");
}

}  // namespace
}  // namespace tessera::tools
