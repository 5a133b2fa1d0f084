// The class Layout: normal form, map, inverse, and what it refuses.

#include "dsl/layout/layout.h"

#include "dsl/base/error.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

std::string refusal(std::vector<int64_t> shape, std::vector<Digit> digits,
                    std::vector<Replica> replicas = {}) {
  try {
    Layout(std::move(shape), std::move(digits), std::move(replicas));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
    CHECK(error.op() == "layout");
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("equal maps have equal normal forms", "[layout]") {
  const Layout whole({32}, {{0, 1, 32, 1, 0}});
  SECTION("adjacent digits with one continued stride merge") {
    CHECK(Layout({32}, {{0, 1, 4, 1, 0}, {0, 4, 2, 4, 0}, {0, 8, 4, 8, 0}}) == whole);
    CHECK(Layout({32}, {{0, 1, 4, 1, 0}, {0, 4, 8, 0, 1}}) != whole);
  }
  SECTION("order and digits of extent 1 do not matter, not even their strides") {
    CHECK(Layout({32}, {{0, 8, 4, 8, 0}, {0, 32, 1, 7, 9}, {0, 1, 8, 1, 0}}) == whole);
  }
  SECTION("replicas are sorted, merged, and dropped if they stay in their thread") {
    const Layout layout({32}, {{0, 1, 32, 0, 1}}, {{2, 12}, {3, 4}, {4, 1}, {5, 0}, {1, 9}});
    CHECK(layout.replicas() == std::vector<Replica>{{24, 1}});
    const Layout apart({32}, {{0, 1, 32, 0, 1}}, {{2, 6}, {2, 3}, {3, 2}});
    CHECK(apart.replicas() == std::vector<Replica>{{6, 2}, {2, 3}});
  }
  SECTION("a short chain ends in a digit without strides") {
    const Layout layout({70}, {{0, 1, 32, 1, 0}});
    CHECK(layout.digits() == std::vector<Digit>{{0, 1, 32, 1, 0}, {0, 32, 3, 0, 0}});
    CHECK(layout.padded_extent(0) == 96);
  }
}

TEST_CASE("normal forms of random layouts: equal exactly if the maps are", "[layout]") {
  Random random(11);
  for (int round = 0; round < 1000; ++round) {
    const Layout layout = random_layout(random);
    // Splitting a digit anywhere keeps the map.
    std::vector<Digit> split;
    for (const Digit& digit : layout.digits()) {
      if (digit.extent > 2 && digit.extent % 2 == 0) {
        split.push_back(
            {digit.axis, digit.div * 2, digit.extent / 2, digit.thread * 2, digit.slot * 2});
        split.push_back({digit.axis, digit.div, 2, digit.thread, digit.slot});
      } else {
        split.push_back(digit);
      }
    }
    REQUIRE(Layout(layout.shape(), split, layout.replicas()) == layout);
    if (layout.digits().empty()) continue;
    // Another stride changes it.
    const auto changed =
        static_cast<size_t>(pick(random, 0, static_cast<int64_t>(split.size()) - 1));
    (split[changed].thread != 0 ? split[changed].thread : split[changed].slot) += 1;
    REQUIRE(Layout(layout.shape(), split, layout.replicas()) != layout);
  }
}

TEST_CASE("element undoes place on 1000 random layouts (L05)", "[layout]") {
  Random random(5);
  int ragged = 0;
  for (int round = 0; round < 1000; ++round) {
    const Layout layout = random_layout(random);
    ragged += layout.is_ragged() ? 1 : 0;
    CAPTURE(round, to_string(layout));
    const auto points = all_points(padded_shape(layout));
    for (const auto& point : points) {
      for (int64_t copy = 0; copy < layout.num_replicas(); ++copy) {
        const Place place = layout.place(point, copy);
        if (place.thread >= layout.num_threads() || place.slot >= layout.num_slots() ||
            layout.element(place.thread, place.slot) != point) {
          FAIL("copy " << copy << " in thread " << place.thread << " slot " << place.slot);
        }
      }
    }
    // Every other register is empty.
    const int64_t registers = layout.num_threads() * layout.num_slots();
    if (registers > 4000) continue;
    int64_t held = 0;
    for (int64_t thread = 0; thread < layout.num_threads(); ++thread) {
      for (int64_t slot = 0; slot < layout.num_slots(); ++slot) {
        held += layout.element(thread, slot).has_value() ? 1 : 0;
      }
    }
    REQUIRE(held == static_cast<int64_t>(points.size()) * layout.num_replicas());
  }
  CHECK(ragged > 100);
}

TEST_CASE("element searches when strides do not nest", "[layout]") {
  // 0 2 4 and + 0 3: 0 2 3 4 5 7; the greedy choice for 3 and 5 would be wrong for stride 3 first.
  const Layout layout({6}, {{0, 1, 3, 2, 0}, {0, 3, 2, 3, 0}});
  CHECK(layout.element(3, 0) == std::vector<int64_t>{3});
  CHECK(layout.element(4, 0) == std::vector<int64_t>{2});
  CHECK(layout.element(5, 0) == std::vector<int64_t>{4});
  CHECK(layout.element(7, 0) == std::vector<int64_t>{5});
  CHECK_FALSE(layout.element(1, 0));
  CHECK_FALSE(layout.element(6, 0));
  CHECK_FALSE(layout.element(8, 0));
  CHECK_FALSE(layout.element(-1, 0));
  CHECK_FALSE(layout.element(0, 1));
  // 1 = 2 * 2 - 3, but digits are never negative.
  CHECK_FALSE(Layout({16}, {{0, 1, 8, 2, 0}, {0, 8, 2, 3, 0}}).element(1, 0));
}

TEST_CASE("rank 0 is one element", "[layout]") {
  const Layout layout({}, {}, {{32, 1}});
  CHECK(layout.num_threads() == 32);
  CHECK(layout.num_slots() == 1);
  CHECK(layout.place({}, 31) == Place{31, 0});
  CHECK(layout.element(7, 0) == std::vector<int64_t>{});
  CHECK(Layout().num_threads() == 1);
}

TEST_CASE("a layout refuses digits that are no chain", "[layout]") {
  CHECK(refusal({8, 0}, {}) ==
        "tessera: layout: argument 'shape' has an empty axis\n"
        "  expected  extents from 1 up\n"
        "  got       8 x 0");
  CHECK(refusal({1 << 20, 1 << 20}, {}) ==
        "tessera: layout: argument 'shape' is too large for a tile\n"
        "  expected  fewer than 2^31 elements\n"
        "  got       1048576 x 1048576");
  CHECK(refusal({8}, {{1, 1, 8, 1, 0}}) ==
        "tessera: layout: argument 'digits' has a digit of an axis that the shape does not have\n"
        "  expected  an axis below 1\n"
        "  got       axis 1, div 1, extent 8, thread 1, slot 0");
  CHECK(refusal({8}, {{0, 1, 0, 1, 0}}) ==
        "tessera: layout: argument 'digits' has a digit without values\n"
        "  expected  div and extent from 1 up, extent below 2^31\n"
        "  got       axis 0, div 1, extent 0, thread 1, slot 0");
  CHECK(refusal({8}, {{0, 1, 8, -1, 0}}) ==
        "tessera: layout: argument 'digits' has a digit with a bad stride\n"
        "  expected  strides from 0 up to below 2^31\n"
        "  got       axis 0, div 1, extent 8, thread -1, slot 0");
  CHECK(refusal({8}, {{0, 1, 8, 1, 1}}) ==
        "tessera: layout: argument 'digits' has a digit that moves thread and slot at once\n"
        "  expected  one stride of the two\n"
        "  got       axis 0, div 1, extent 8, thread 1, slot 1");
  CHECK(refusal({8}, {{0, 1, 2, 1, 0}, {0, 4, 2, 2, 0}}) ==
        "tessera: layout: argument 'digits' does not chain: each div is the product of the extents "
        "below\n"
        "  expected  div 2\n"
        "  got       axis 0, div 4, extent 2, thread 2, slot 0");
  CHECK(refusal({8}, {{0, 1, 8, 1, 0}}, {{0, 8}}) ==
        "tessera: layout: argument 'replicas' has a replica out of range\n"
        "  expected  extent from 1 up and thread from 0 up, both below 2^31\n"
        "  got       extent 0, thread 8");
  CHECK(refusal({8}, {{0, 1, 8, 1 << 30, 0}}) ==
        "tessera: layout: argument 'digits, replicas' reaches thread numbers that no block has\n"
        "  expected  numbers below 2^31\n"
        "  got       7516192768");
  CHECK(refusal({8}, {{0, 1, 65536, 1, 0}, {0, 65536, 65536, 0, 1}}) ==
        "tessera: layout: argument 'digits' pads an axis too far\n"
        "  expected  fewer than 2^31 indices\n"
        "  got       axis 0, div 65536, extent 65536, thread 0, slot 1");
}

TEST_CASE("an index of another rank is a bug of ours", "[layout]") {
  const Layout layout({8}, {{0, 1, 8, 1, 0}});
  CHECK_THROWS_AS(layout.place({1, 2}), Error);
  CHECK_THROWS_AS(layout.padded_extent(1), Error);
}

}  // namespace tessera::layout
