// Timelines as text and as pictures.

#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/trial.h"

namespace tessera::tools {
namespace {

using kernels::jit::Timeline;

/// A warp that loads, and one that waits and adds.
Timeline sample() {
  Timeline timeline{"sum", 2, "cycles", {"load", "add", "wait"}, {}};
  timeline.rows.push_back({0, "copies", {{0, 0, 320, 0}}, 3});
  timeline.rows.push_back({4, "adds", {{1, 320, 640, 0}, {2, 480, 560, 1}}, 0});
  return timeline;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("a mark in one warp of four counts as a quarter of a time for each", "[timeline]") {
  Timeline timeline{"sum", 0, "steps", {"last"}, {}};
  for (int warp = 0; warp < 4; ++warp) timeline.rows.push_back({warp, "", {}, 0});
  timeline.rows[3].bars = {{0, 0, 20, 0}};
  CHECK(timeline_text(timeline).find("last: 0.25 times, 5 steps of each warp, 25 %") !=
        std::string::npos);
}

TEST_CASE("a timeline as text has a line per warp and sums per role", "[timeline]") {
  CHECK(timeline_text(sample()) ==
        "sum, block 2: 640 cycles, 3 begins and ends did not fit\n"
        "copies, warp 0  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa................................\n"
        "adds, warp 4    ................................bbbbbbbbbbbbbbbb--------bbbbbbbb\n"
        "b  adds, add: 1 times, 320 cycles of each warp, 50 %\n"
        "-  adds, wait: 1 times, 80 cycles of each warp, 12 %\n"
        "a  copies, load: 1 times, 320 cycles of each warp, 50 %\n");
}

TEST_CASE("a picture of a timeline has boxes where the times say, names and a legend",
          "[timeline]") {
  const std::string picture = timeline_picture(sample());
  CHECK(picture.find("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 ") == 0);
  // 830 pixels for 640 cycles, from 110 on
  CHECK(count(picture,
              "<path d=\"M110.0 40.0h415.0v16h-415.0z\" class=\"m0\"><title>load</title>") == 1);
  CHECK(count(picture,
              "<path d=\"M525.0 70.0h415.0v16h-415.0z\" class=\"m1\"><title>add</title>") == 1);
  CHECK(count(picture,
              "<path d=\"M732.5 73.0h103.8v10h-103.8z\" class=\"wait\"><title>wait</title>") == 1);
  CHECK(count(picture, ">load</text>") == 2);  // in the legend and in the box
  CHECK(count(picture, ">add</text>") == 1);   // another mark is inside the box
  CHECK(count(picture, ">copies, warp 0</text>") == 1);
  CHECK(count(picture, "prefers-color-scheme: dark") == 1);
  CHECK(count(picture, "</svg>") == 1);
}

}  // namespace
}  // namespace tessera::tools

namespace tessera::tests {
namespace {

TEST_CASE("report draws the timeline of a user's own kernel", "[timeline][cli]") {
  const TemporaryFolder folder;
  const ProgramResult drawn = run_own_program(
      {"report", "--timeline", "gather", "--block", "7", "--out", folder.path("gather.svg")});
  CAPTURE(drawn.out, drawn.err);
  CHECK(drawn.exit_code == 0);
  CHECK(drawn.out.find("gather, block 7: ") == 0);
  CHECK(drawn.out.find("a  scale: 1 times, ") != std::string::npos);
  CHECK(read_text(folder.path("gather.svg")).find("<svg ") == 0);
}

TEST_CASE("report says what a timeline lacks", "[timeline][cli]") {
  const ProgramResult none = run_own_program({"report", "--timeline", "wild"});
  CHECK(none.exit_code == 1);
  CHECK(none.err ==
        "tessera: wild: no warp of block 0 comes to a mark\n"
        "  expected  kernels with k.mark or rings\n"
        "  got       none\n"
        "  hint      k.mark(\"name\", [&] { ... })\n");
  CHECK(run_own_program({"report"}).exit_code == 2);
  CHECK(run_own_program({"report", "bench.json"}).exit_code == 2);
  CHECK(run_own_program({"report", "bench.json", "--timeline", "wild"}).exit_code == 2);
  CHECK(run_own_program({"report", "--timeline", "wil"}).exit_code == 2);
}

}  // namespace
}  // namespace tessera::tests
