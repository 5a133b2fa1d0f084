// tessera report: numbers read back, averaged and drawn.

#include "tools/lib/report/report.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <functional>
#include <set>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/bench/measured.h"
#include "tools/lib/report/report_charts.h"
#include "tools/lib/text/svg.h"

namespace tessera::tests {
namespace {

using namespace tools;

BenchResult result(std::string op, std::string label, double us, std::optional<double> peer_us) {
  BenchResult r;
  r.op = std::move(op);
  r.label = std::move(label);
  r.bytes = 1'000'000;
  r.written = 250'000;
  r.timing = {us, 0.01, 30};
  r.gbs = 1e3 / us;
  r.copy_gbs = 1000;
  r.stream_us = 0.4 * us;
  r.peer_us = r.peer_scaled_us = peer_us;
  return r;
}

BenchFile two_ops() {
  BenchFile file;
  file.machine = {"GPU <1>", "13.0", "13.0", "CUPTI", "2026-11-29", "0.2.0, code 0123456789ab"};
  file.results = {result("topk_gate", "T=1", 1, 4), result("topk_gate", "T=2", 2, 2),
                  result("transpose", "R=3 & \"C\"", 20, 10), result("transpose", "R=4", 1, {})};
  return file;
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

/// Every tag is closed by its own, in order. Void elements of the page's head aside.
bool is_balanced(const std::string& markup) {
  std::vector<std::string> open;
  for (size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
    const size_t end = markup.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = markup.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (name == "!DOCTYPE" || name == "meta" || tag.back() == '/') continue;
    if (name[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || "/" + open.back() != name) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

bool is_near(double value, double expected) {
  return std::abs(value - expected) < 1e-9;
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("ops are averaged over their cases, then among themselves", "[report]") {
  const BenchFile file = two_ops();
  const std::vector<OpRatio> ratios = op_ratios(file);
  REQUIRE(ratios.size() == 2);
  CHECK(ratios[0].op == "topk_gate");
  CHECK(ratios[0].cases.size() == 2);
  CHECK(is_near(ratios[0].ratio, 0.5));  // of 1/4 and 1
  CHECK(ratios[1].cases.size() == 1);    // the case without a peer time is left out
  CHECK(is_near(ratios[1].ratio, 2));
  CHECK(is_near(mean_ratio(ratios), 1));
  CHECK(mean_ratio({}) == 0);
}

TEST_CASE("a case keeps up within 2 %, or 0.15 us below 10 us", "[report]") {
  CHECK(keeps_up(result("op", "", 102, 100)));
  CHECK_FALSE(keeps_up(result("op", "", 102.1, 100)));
  CHECK(keeps_up(result("op", "", 2.14, 2)));
  CHECK_FALSE(keeps_up(result("op", "", 2.16, 2)));
  CHECK(keeps_up(result("op", "", 9.17, 9)));
  CHECK_FALSE(keeps_up(result("op", "", 10.3, 10)));
}

TEST_CASE("the page holds every case once in each part", "[report]") {
  const BenchFile file = two_ops();
  const std::string page = report_page(file);
  CHECK(is_balanced(page));
  CHECK(page.find("http") == std::string::npos);  // stands alone
  CHECK(page.find("<h1>Tessera on GPU &lt;1&gt;</h1>") != std::string::npos);
  CHECK(page.find("<b>1.00</b>of the peer's time, geometric mean over 2 ops") != std::string::npos);
  CHECK(page.find("<b>2 of 3</b>cases not slower than the peer") != std::string::npos);
  CHECK(page.find("<b>2 of 4</b>cases at 92 % of the copy rate") != std::string::npos);
  CHECK(count(page, "<tr>") == 1 + file.results.size());
  CHECK(count(page, "<td>R=3 &amp; &quot;C&quot;</td>") == 1);
  CHECK(count(page, "<th>% of stream</th>") == 1);
  CHECK(count(page, "<td>40.0</td>") == file.results.size());
  CHECK(count(page, "<span class=\"slower\">2.00</span>") == 1);

  const std::string peers = draw_peer_ratios(file);
  CHECK(is_balanced(peers));
  CHECK(count(peers, "<rect") == 2);
  CHECK(count(peers, "<circle") == 3);
  CHECK(peers.find("class=\"bar moe\"") < peers.find("class=\"bar transpose\""));  // fastest first
  CHECK(peers.find("mean 1.00") != std::string::npos);

  const std::string roofline = draw_roofline(file);
  CHECK(is_balanced(roofline));
  CHECK(count(roofline, "<circle") == file.results.size());
  CHECK(count(roofline, "<polyline") == 2);
  CHECK(count(roofline, "dot moe") == 2);
}

TEST_CASE("the same numbers as Markdown", "[report]") {
  BenchFile file = two_ops();
  file.results.resize(3);
  file.launches = {{"transpose", "R=1", 2, 1, 2000, 2100, 2500}};
  CHECK(
      report_markdown(file) ==
      R"(GPU \<1>, driver 13.0, NVRTC 13.0, times from CUPTI, 2026-11-29, Tessera 0.2.0, code 0123456789ab.

| op | case | us | GB/s | % of copy | % of stream |
|---|---|--:|--:|--:|--:|
| `topk_gate` | T=1 | 1.00 | 1000 | 100.0 | 40.0 |
| `topk_gate` | T=2 | 2.00 | 500 | 50.0 | 40.0 |
| `transpose` | R=3 & "C" | 20.00 | 50 | 5.0 | 40.0 |

| op | case | driver alone, ns | plan above | call above |
|---|---|--:|--:|--:|
| `transpose` | R=1 | 2000 | 100 | 500 |
)");
}

TEST_CASE("dots lie where their numbers say", "[report]") {
  BenchFile file;
  file.results = {result("topk_gate", "a", 1, 2), result("topk_gate", "b", 3, 2)};
  // The axis ends at 1.6, the first multiple of 0.2 beyond the dot at 1.5: 630 pixels from 270 on.
  const std::string peers = draw_peer_ratios(file);
  CHECK(peers.find("<circle cx=\"466.9\" cy=\"39.0\"") != std::string::npos);  // 0.5
  CHECK(peers.find("<circle cx=\"860.6\" cy=\"39.0\"") != std::string::npos);  // 1.5
  CHECK(peers.find("<line x1=\"663.8\" y1=\"22.0\" x2=\"663.8\" y2=\"50.0\" class=\"limit\"/>") !=
        std::string::npos);

  file.results = {result("topk_gate", "a", 1, {}), result("topk_gate", "b", 100, {})};
  file.results[1].bytes = 10'000'000;
  // 1 MB to 10 MB from left to right, 10 to 1000 GB/s from bottom to top.
  const std::string roofline = draw_roofline(file);
  CHECK(roofline.find("<circle cx=\"80.0\" cy=\"16.0\"") != std::string::npos);
  CHECK(roofline.find("<circle cx=\"940.0\" cy=\"430.0\"") != std::string::npos);
  CHECK(roofline.find("points=\"80.0,16.0 940.0,16.0 \"") != std::string::npos);
}

TEST_CASE("parts without numbers are left out", "[report]") {
  BenchFile file = two_ops();
  for (BenchResult& r : file.results) r.peer_us = r.peer_scaled_us = {};
  CHECK(report_page(file).find("Against the peer") == std::string::npos);
  CHECK(draw_peer_ratios(file).empty());
  file.results.clear();
  file.launches = {{"topk_gate", "T=1", 2, 1, 1500, 1570, 1800}};
  const std::string page = report_page(file);
  CHECK(is_balanced(page));
  CHECK(page.find("<svg") == std::string::npos);
  CHECK(page.find("<td>1500</td><td>70</td><td>300</td>") != std::string::npos);
  CHECK(draw_roofline(file).empty());
}

TEST_CASE("what bench writes is read back whole", "[report]") {
  const TemporaryFolder folder;
  BenchFile file = two_ops();
  file.launches = {{"topk_gate", "T=1", 2, 1, 1500, 1570, 1800}};
  write_text(folder.path("b"), bench_json(file.machine, file.results, file.launches));
  const BenchFile read = read_bench(folder.path("b"));
  CHECK(report_page(read) == report_page(file));
  CHECK(read.results[2].written == 250'000);
  CHECK(read.results[2].stream_us == 8);

  const std::string none = folder.path("none");
  CHECK(message([&] { read_bench(none); }) == "tessera: " + none +
                                                  ": cannot be opened\n"
                                                  "  expected  a readable file\n"
                                                  "  got       No such file or directory");
  REQUIRE(::mkfifo(folder.path("fifo").c_str(), 0600) == 0);
  CHECK(message([&] { read_bench(folder.path("fifo")); }) == "tessera: " + folder.path("fifo") +
                                                                 ": cannot be read\n"
                                                                 "  expected  a regular file\n"
                                                                 "  got       a special file");
  for (const char* other : {"compile", "cold"}) {
    write_text(folder.path(other), std::string("{\"") + other + "\": []}");
    CHECK(message([&] { read_bench(folder.path(other)); }) ==
          "tessera: " + folder.path(other) +
              ": holds no benchmark\n"
              "  expected  a file written by tessera bench --json or --record\n"
              "  got       a file of bench --" +
              other + ", which has no GPU times to draw");
  }
  write_text(folder.path("list"), "[1, 2]");
  CHECK(message([&] { read_bench(folder.path("list")); }).find("holds no benchmark") !=
        std::string::npos);
  file.results[2].timing.us = 0;
  write_text(folder.path("zero"), bench_json(file.machine, file.results, {}));
  CHECK(message([&] {
          read_bench(folder.path("zero"));
        }).find("got       transpose, R=3 & \"C\": times, bytes and rates") != std::string::npos);
}

TEST_CASE("every family has a colour of its own", "[report]") {
  const std::string page = report_page(two_ops());
  std::set<std::string> colours;
  std::set<std::string> families;
  for (const kernels::OpInfo& op : kernels::ops()) families.insert(op.family);
  for (const std::string& family : families) {
    CAPTURE(family);
    const std::string rule = "." + family + " { fill: #";
    const size_t at = page.find(rule);
    REQUIRE(at != std::string::npos);
    colours.insert(page.substr(at + rule.size(), 6));
  }
  CHECK(colours.size() == families.size());
}

TEST_CASE("a page says when and by which code its times were taken", "[report]") {
  CHECK(report_page(two_ops()).find(
            "<p class=\"machine\">times from CUPTI, driver 13.0, NVRTC 13.0, 2026-11-29, "
            "Tessera 0.2.0, code 0123456789ab</p>") != std::string::npos);
}

TEST_CASE("a record is drawn, with copy rates and without", "[report]") {
  const TemporaryFolder folder;
  const kernels::OpInfo& op = kernels::find_op("transpose");
  BenchResult one = result("transpose", op.bench.front().label, 100, {});
  one.bytes = op.bench.front().bytes;
  write_text(folder.path("new.jsonl"),
             run_line("a card", "a command", {one}) + bench_record({one}));
  write_text(folder.path("old.jsonl"),
             fmt::format(R"({{"op": "transpose", "case": "{}", "time_us": 100}})"
                         "\n"
                         R"({{"op": "no_such_op", "case": "T=1", "time_us": 1}})"
                         "\n",
                         one.label));
  for (const bool is_new : {false, true}) {
    const BenchFile file = read_bench(folder.path(is_new ? "new.jsonl" : "old.jsonl"));
    REQUIRE(file.results.size() == 1);
    CHECK(file.results[0].bytes == op.bench.front().bytes);
    CHECK(is_near(file.results[0].gbs, static_cast<double>(op.bench.front().bytes) / 1e5));
    CHECK(file.results[0].copy_gbs == (is_new ? 1000 : 0));
    const std::string page = report_page(file);
    CHECK(is_balanced(page));
    CHECK(count(page, "<polyline") == (is_new ? 2 : 0));
    CHECK(count(page, "<circle") == 2);  // the legend's and the case
    CHECK((page.find("of the copy rate or more") != std::string::npos) == is_new);
    CHECK(page.find("<td>-</td><td>-</td>") != std::string::npos);
    CHECK(report_markdown(file).find(is_new ? " | - |\n" : " | - | - |\n") != std::string::npos);
  }
  write_text(folder.path("other.jsonl"), R"({"op": "no_such_op", "case": "T=1", "time_us": 1})");
  CHECK(message([&] {
          read_bench(folder.path("other.jsonl"));
        }).find("got       a record without a case of ours") != std::string::npos);
}

TEST_CASE("the peer's times are found by op and label", "[report]") {
  const TemporaryFolder folder;
  const kernels::OpInfo& op = kernels::find_op("topk_gate");
  const kernels::BenchCase& one = op.bench.front();
  write_text(folder.path("peer.jsonl"),
             fmt::format(R"({{"op": "topk_gate", "case": "{}", "time_us": 8}})", one.label));
  BenchFile file;
  file.results = {result("topk_gate", one.label, 4, {}), result("topk_gate", "no such case", 4, 5)};
  set_peer_times(file, PeerTimes::load(folder.path("peer.jsonl")));
  CHECK(file.results[0].peer_us == 8);
  CHECK(is_near(peer_ratio(file.results[0]), 0.5));
  CHECK(file.results[1].peer_us == 5);
}

TEST_CASE("report writes a page or says what is wrong", "[report][cli]") {
  const TemporaryFolder folder;
  const BenchFile file = two_ops();
  write_text(folder.path("b"), bench_json(file.machine, file.results, {}));
  const ProgramResult good =
      run_tessera({"report", folder.path("b"), "--out", folder.path("page.html")});
  CAPTURE(good.err);
  CHECK(good.exit_code == 0);
  CHECK(read_text(folder.path("page.html")) == report_page(file));

  CHECK(run_tessera({"report", folder.path("b")}).exit_code == 2);  // where to?
  const ProgramResult wrong =
      run_tessera({"report", folder.path("page.html"), "--out", folder.path("x")});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("page.html: holds no benchmark\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path("x")));
  const ProgramResult peer = run_tessera(
      {"report", folder.path("b"), "--peer", "/no/such/file", "--out", folder.path("x")});
  CHECK(peer.exit_code == 2);
  CHECK(peer.err.find("tessera: /no/such/file: cannot be opened\n") == 0);
}

}  // namespace tessera::tests
