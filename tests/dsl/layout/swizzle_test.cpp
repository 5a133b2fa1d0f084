#include "dsl/layout/swizzle.h"

#include <algorithm>
#include <set>
#include <string>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

/// Every point goes to its own offset inside the tile and comes back.
void check_bijective(const Swizzle& swizzle) {
  std::set<int64_t> used;
  for (int64_t row = 0; row < swizzle.rows; ++row) {
    for (int64_t column = 0; column < swizzle.columns; ++column) {
      const int64_t at = offset(swizzle, row, column);
      REQUIRE(at >= 0);
      REQUIRE(at < swizzle.rows * swizzle.columns);
      REQUIRE(used.insert(at).second);
      REQUIRE(point_at(swizzle, at) == TilePoint{row, column});
    }
  }
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("swizzle modes move every element once (L08)", "[layout]") {
  const int64_t bits = GENERATE(4, 8, 16, 32);
  const auto mode = GENERATE(SwizzleMode::bytes_32, SwizzleMode::bytes_64, SwizzleMode::bytes_128);
  const int64_t panels = GENERATE(1, 2, 3);
  const int64_t rows = GENERATE(1, 5, 16);
  check_bijective(swizzle_mode(rows, panels * static_cast<int64_t>(mode) * 8 / bits, bits, mode));
}

TEST_CASE("eight rows of a chunk column fall into eight bank groups (L08)", "[layout]") {
  const int64_t bits = GENERATE(4, 8, 16, 32);
  const auto mode = GENERATE(SwizzleMode::bytes_32, SwizzleMode::bytes_64, SwizzleMode::bytes_128);
  const Swizzle swizzle = swizzle_mode(24, 2 * static_cast<int64_t>(mode) * 8 / bits, bits, mode);
  for (int64_t column = 0; column < swizzle.columns; column += swizzle.chunk) {
    for (int64_t first = 0; first + 8 <= swizzle.rows; ++first) {
      std::set<int64_t> groups;
      for (int64_t row = first; row < first + 8; ++row) {
        const int64_t bytes = offset(swizzle, row, column) * bits / 8;
        REQUIRE(bytes % 16 == 0);
        groups.insert(bytes / 16 % 8);
      }
      REQUIRE(groups.size() == 8);
    }
  }
}

TEST_CASE("swizzle offsets by hand (L08, E17)", "[layout]") {
  const Swizzle halves = swizzle_mode(64, 64, 16, SwizzleMode::bytes_128);
  CHECK(offset(halves, 5, 19) == 379);  // chunk 2 ^ 5 = 7
  CHECK(offset(halves, 13, 19) == 13 * 64 + 7 * 8 + 3);
  CHECK(halves == xor_swizzle(64, 64, 16, 0, 7));
  // 64 bytes: chunk ^ (row % 8 / 2) among 4; 32 bytes: chunk ^ (row % 8 / 4) among 2.
  CHECK(offset(swizzle_mode(64, 32, 16, SwizzleMode::bytes_64), 5, 19) == 5 * 32 + 0 * 8 + 3);
  CHECK(offset(swizzle_mode(64, 16, 16, SwizzleMode::bytes_32), 5, 3) == 5 * 16 + 1 * 8 + 3);
  // The second panel starts behind all rows of the first.
  CHECK(offset(swizzle_mode(64, 128, 16, SwizzleMode::bytes_128), 5, 64 + 19) == 64 * 64 + 379);
}

TEST_CASE("the general form", "[layout]") {
  check_bijective(xor_swizzle(32, 128, 16, 0, 7));
  check_bijective(xor_swizzle(32, 96, 32, 1, 7));
  check_bijective(xor_swizzle(7, 48, 8, 3, 0));
  // Without mask nothing moves.
  CHECK(offset(xor_swizzle(8, 48, 8, 0, 0), 3, 17) == 3 * 48 + 17);
  // Two columns of chunks per swizzle group: chunk 9 ^ (3 & 7) = 10.
  CHECK(offset(xor_swizzle(8, 128, 16, 0, 7), 3, 75) == 3 * 128 + 10 * 8 + 3);
}

TEST_CASE("swizzles explain what they cannot cut", "[layout]") {
  CHECK(refusal([] { swizzle_mode(8, 96, 16, SwizzleMode::bytes_128); }) ==
        "tessera: swizzle_mode: argument 'columns' is not a whole number of panels\n"
        "  expected  a multiple of 64\n"
        "  got       96");
  CHECK(refusal([] { xor_swizzle(8, 72, 16, 0, 7); }) ==
        "tessera: xor_swizzle: argument 'columns' is not a whole number of swizzle groups\n"
        "  expected  a multiple of 64 (8 chunks of 16 bytes)\n"
        "  got       72");
  CHECK(refusal([] { xor_swizzle(8, 64, 16, 0, 5); }) ==
        "tessera: xor_swizzle: argument 'mask' is not one less than a power of two\n"
        "  expected  0, 1, 3, 7, ... 65535\n"
        "  got       5");
  CHECK(refusal([] { xor_swizzle(8, 64, 16, -1, 7); }) ==
        "tessera: xor_swizzle: argument 'shift' is out of range\n"
        "  expected  0 .. 30\n"
        "  got       -1");
  CHECK(refusal([] { xor_swizzle(8, 64, 24, 0, 7); }) ==
        "tessera: xor_swizzle: argument 'element_bits' does not divide 16 bytes\n"
        "  expected  a divisor of 128\n"
        "  got       24");
  CHECK(refusal([] { xor_swizzle(0, 64, 16, 0, 7); }) ==
        "tessera: xor_swizzle: argument 'shape' has an empty axis\n"
        "  expected  extents from 1 up\n"
        "  got       0 x 64");
  CHECK_THROWS_AS(offset(xor_swizzle(8, 64, 16, 0, 7), 8, 0), Error);
  CHECK_THROWS_AS(point_at(xor_swizzle(8, 64, 16, 0, 7), 512), Error);
}

}  // namespace tessera::layout
