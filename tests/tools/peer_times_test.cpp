// Times of another library, in the words of our cases.

#include "tools/lib/bench/peer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/tools/not_measured.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/bench/bench.h"

namespace tessera::tools {
namespace {

using tests::read_text;
using tests::TemporaryFolder;
using tests::write_text;

const kernels::BenchCase& bench_case(const std::string& op, const std::string& label) {
  for (const kernels::BenchCase& one : kernels::find_op(op).bench) {
    if (one.label == label) return one;
  }
  throw std::runtime_error("no case " + label);
}

PeerTimes times_of(const std::string& text) {
  const TemporaryFolder folder;
  write_text(folder.path("peer.jsonl"), text);
  return PeerTimes::load(folder.path("peer.jsonl"));
}

std::string error_of(const std::string& text) {
  try {
    times_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("a peer's time is found by op and case, whatever the order of the words", "[peer]") {
  const PeerTimes times = times_of(
      "{\"op\": \"topk_gate\", \"case\": \"num_topk=6 E=72 T=4001\", \"time_us\": 8}\n\n"
      "{\"op\": \"norm_fn_fwd\", \"case\": \"T=4096 n=4 H=7168 norm_eps=1e-6 n_splits=16\", "
      "\"time_us\": 9.5}\n"
      "{\"op\": \"no_op_of_ours\", \"case\": \"X=1\", \"time_us\": 1}\n");
  CHECK(times.find(kernels::find_op("topk_gate"),
                   bench_case("topk_gate", "T=4001 E=72 num_topk=6")) == 8);
  CHECK(times.find(kernels::find_op("topk_gate"),
                   bench_case("topk_gate", "T=4001 E=96 num_topk=6")) == std::nullopt);
  CHECK(times.find(kernels::find_op("norm_fn_fwd"),
                   bench_case("norm_fn_fwd", "T=4096 n=4 H=7168 n_splits=16")) == 9.5);
  CHECK(PeerTimes().find(kernels::find_op("topk_gate"),
                         bench_case("topk_gate", "T=4001 E=72 num_topk=6")) == std::nullopt);
}

TEST_CASE("a line that is no time of a case is named", "[peer]") {
  const std::string good =
      "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", \"time_us\": 8}\n";
  CHECK(error_of(good) == "no error");
  for (const char* line :
       {"{\"op\": \"topk_gate\", \"time_us\": 8}", "nonsense", "[1]",
        "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\"}",
        "{\"op\": \"topk_gate\", \"case\": 5, \"time_us\": 8}",
        "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", \"time_us\": 0}",
        "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", "
        "\"time_us\": \"8\"}"}) {
    CAPTURE(line);
    const std::string text = error_of(good + line);
    CHECK(text.find("peer.jsonl: line 2 is no time of a case\n"
                    "  expected  JSON lines with op, case and time_us\n") != std::string::npos);
  }
  const PeerTimes typo =
      times_of("{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_tpok=6\", \"time_us\": 8}");
  REQUIRE(typo.unread().size() == 1);
  CHECK(typo.unread()[0].find("peer.jsonl:1: tessera: topk_gate: unknown word 'num_tpok'") !=
        std::string::npos);
}

TEST_CASE("a record of a run says what a later one made slower", "[peer][bench]") {
  const kernels::OpInfo& op = kernels::find_op("topk_gate");
  std::vector<BenchResult> results;
  for (const kernels::BenchCase& one : {op.bench[0], op.bench[1], op.bench[2]}) {
    BenchResult r;
    r.op = op.name;
    r.label = one.label;
    r.timing.us = 10;
    results.push_back(r);
  }
  const TemporaryFolder folder;
  write_text(folder.path("record.jsonl"), bench_record({results[0], results[1]}));
  CHECK(read_text(folder.path("record.jsonl")) ==
        "{\"op\":\"topk_gate\",\"case\":\"T=4001 E=72 num_topk=6\",\"time_us\":10.0}\n"
        "{\"op\":\"topk_gate\",\"case\":\"T=4001 E=96 num_topk=6\",\"time_us\":10.0}\n");
  const PeerTimes before = PeerTimes::load(folder.path("record.jsonl"));
  for (size_t i = 0; i < results.size(); ++i) results[i].before_us = before.find(op, op.bench[i]);
  CHECK(slower_text(results) == "0 of 3 cases got slower, 1 are not in the record\n");
  results[0].timing.us = 10.14;  // within what runs differ by
  results[1].timing.us = 10.3;
  results[2].timing.us = 99;
  CHECK(slower_text(results) ==
        "1 of 3 cases got slower, 1 are not in the record\n\n"
        "op         case                    before us     us  us/before\n"
        "---------  ----------------------  ---------  -----  ---------\n"
        "topk_gate  T=4001 E=96 num_topk=6      10.00  10.30       1.03\n");
  results[1].timing.us = 10.16;  // above 0.15 us, not above 2 %
  CHECK_FALSE(results[1].is_slower());
}

TEST_CASE("the copy rate of the peer's machine is interpolated", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("README.md"), "Copy: 8 MiB 3000 GB/s, 32 MiB 3600, 1 GiB 4200.\n");
  write_text(folder.path("other.jsonl"), "{\"kernel\": \"something else\"}\n");
  write_text(folder.path("peer.jsonl"),
             "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", \"time_us\": 8}\n");
  const PeerTimes times = PeerTimes::load(folder.path(""));
  CHECK_FALSE(times.empty());
  CHECK(times.copy_gbs(int64_t{4} << 20) == std::nullopt);
  CHECK(times.copy_gbs(int64_t{8} << 20) == 3000);
  CHECK(std::fabs(times.copy_gbs(int64_t{16} << 20).value() - 3300) < 1e-6);
  CHECK(times.copy_gbs(int64_t{2} << 30) == 4200);
}

TEST_CASE("of several peers beside ours the fastest counts, never our own time", "[peer]") {
  const TemporaryFolder folder;
  std::string lines = "{\"run\": {\"card\": \"GPU\"}}\n";
  for (const int us : {9, 7, 8}) {
    lines += fmt::format(
        "{{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", \"time_us\": 5, \"peer\": "
        "\"P{0}\", "
        "\"peer_us\": {0}}}\n",
        us);
  }
  write_text(folder.path("peers.jsonl"), lines);
  const kernels::OpInfo& op = kernels::find_op("topk_gate");
  CHECK(PeerTimes::load(folder.path("peers.jsonl")).find(op, op.case_of("T=1 E=72 num_topk=6")) ==
        7);
}

TEST_CASE("sizes without end in a README of copy rates are no sizes", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("README.md"),
             "99999999999999999999 MiB 3310 GB/s, 0 MiB 1000, 8 MiB 3000 GB/s\n");
  const PeerTimes times = PeerTimes::load(folder.path(""));
  CHECK(times.copy_gbs(int64_t{8} << 20) == 3000);
  CHECK_FALSE(times.copy_gbs(int64_t{4} << 20).has_value());
  CHECK_THROWS_AS(PeerTimes::load(folder.path("missing")), Error);
}

TEST_CASE("the label of every case is a case that a user may type", "[peer][case]") {
  for (const kernels::OpInfo& op : kernels::ops()) {
    const std::vector<kernels::BenchCase> buckets = op.buckets();
    for (const auto* cases : {&op.examples, &op.bench, &buckets}) {
      for (const kernels::BenchCase& one : *cases) {
        CAPTURE(op.name, one.label);
        const kernels::BenchCase again = op.case_of(one.label);
        CHECK(again.label == one.label);
        CHECK(again.params == one.params);
        CHECK(again.bytes == one.bytes);
        CHECK(again.inputs.size() == one.inputs.size());
      }
    }
  }
}

TEST_CASE("our own recorded times are of the cases that are measured", "[peer][bench]") {
  for (const char* gpu : {"h100", "h200"}) {
    const PeerTimes times =
        PeerTimes::load(test::in_source(fmt::format("tools/measured/{}.jsonl", gpu)));
    CHECK(times.unread().empty());
    for (const kernels::OpInfo& op : kernels::ops()) {
      if (test::is_not_measured(op.name)) continue;
      const bool is_newer = std::none_of(  // than the last run on an H100
          op.bench.begin(), op.bench.end(),
          [&](const kernels::BenchCase& one) { return times.find(op, one).has_value(); });
      if (is_newer && gpu == std::string("h100")) continue;
      for (const kernels::BenchCase& one : op.bench) {
        CAPTURE(gpu, op.name, one.label);
        if (gpu == std::string("h100") && one.label.find("psum=") != std::string::npos) continue;
        // A new case: `tessera bench OP --record` on such a GPU.
        CHECK(times.find(op, one).has_value());
      }
    }
  }
}

TEST_CASE("the recorded times of the peer meet our cases", "[peer]") {
  const std::string folder = test::in_source("../shared/peers");
  if (!std::filesystem::exists(folder + "/h200.jsonl")) TESSERA_SKIP("no recorded times");
  const PeerTimes times = PeerTimes::load(folder);
  CHECK(times.unread().size() <= 10);
  int found = 0;
  for (const kernels::OpInfo& op : kernels::ops()) {
    for (const kernels::BenchCase& one : op.bench) found += times.find(op, one) ? 1 : 0;
  }
  CHECK(found >= 100);
}

}  // namespace
}  // namespace tessera::tools
