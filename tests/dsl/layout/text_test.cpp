// Layouts as text.

#include "dsl/base/error.h"
#include "dsl/layout/layout.h"
#include "tests/support/catch.h"

namespace tessera::layout {

TEST_CASE("a layout in one line", "[layout]") {
  CHECK(to_string(split({64, 128}, 256, 4)) ==
        "thread = (i % 8) * 32 + j / 4, slot = (i / 8) * 4 + j % 4");
  CHECK(to_string(split({64, 96}, 256, 4)) ==
        "thread = (i % 32) * 8 + (j / 4) % 8, slot = (i / 32) * 12 + (j / 32) * 4 + j % 4");
  CHECK(to_string(split({1, 229}, 128, 1)) ==
        "thread = j % 128, slot = j / 128, padded to 1 x 256");
  CHECK(to_string(split({32, 4, 4}, 128, 4)) == "thread = i * 4 + j, slot = k");
  CHECK(to_string(reduce(split({64, 128}, 256, 4), 1)) ==
        "thread = (i % 8) * 32 + rep, slot = i / 8, 32 copies");
  CHECK(to_string(Layout({64}, {{0, 1, 8, 4, 0}, {0, 8, 2, 0, 1}, {0, 16, 4, 32, 0}},
                         {{2, 128}, {4, 1}})) ==
        "thread = (rep / 4) * 128 + (i / 16) * 32 + (i % 8) * 4 + rep % 4, slot = (i / 8) % 2, "
        "8 copies");
  CHECK(to_string(Layout()) == "thread = 0, slot = 0");
  CHECK(to_string(Layout({64}, {{0, 1, 32, 1, 0}})) == "thread = i % 32, slot = 0");
}

TEST_CASE("a layout as a grid of threads", "[layout]") {
  CHECK(draw(split({2, 8}, 8, 2)) ==
        "  | 0 1 2 3 4 5 6 7\n"
        "--+----------------\n"
        "0 | 0 0 1 1 2 2 3 3\n"
        "1 | 4 4 5 5 6 6 7 7\n");
  SECTION("cut") {
    CHECK(draw(split({64, 128}, 256, 4), 3, 6) ==
          "    |   0   1   2   3   4   5 ...\n"
          "----+------------------------\n"
          "  0 |   0   0   0   0   1   1 ...\n"
          "  1 |  32  32  32  32  33  33 ...\n"
          "  2 |  64  64  64  64  65  65 ...\n"
          "...\n");
  }
  SECTION("one row") {
    CHECK(draw(split({3}, 4, 1)) ==
          "  | 0 1 2\n"
          "--+------\n"
          "0 | 0 1 2\n");
    CHECK(draw(Layout()) ==
          "  | 0\n"
          "--+--\n"
          "0 | 0\n");
  }
  SECTION("panels, as many as fit") {
    CHECK(draw(split({2, 2, 2, 2}, 16, 1), 5) ==
          "i = 0, j = 0\n"
          "   |  0  1\n"
          "---+------\n"
          " 0 |  0  1\n"
          " 1 |  2  3\n"
          "i = 0, j = 1\n"
          "   |  0  1\n"
          "---+------\n"
          " 0 |  4  5\n"
          " 1 |  6  7\n"
          "...\n");
  }
  try {
    draw(Layout(), 0, 5);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: draw: argument 'max_rows, max_cols' leave nothing to draw\n"
          "  expected  from 1 up\n"
          "  got       0, 5");
  }
}

}  // namespace tessera::layout
