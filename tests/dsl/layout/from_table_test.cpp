// Recovery of digits from enumerated maps.

#include "dsl/base/error.h"
#include "dsl/layout/layout.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

using Index = std::vector<int64_t>;

std::vector<Place> table(const Layout& layout) {
  std::vector<Place> places;
  for (const auto& point : all_points(layout.shape())) places.push_back(layout.place(point));
  return places;
}

}  // namespace

TEST_CASE("from_table recovers random layouts", "[layout]") {
  Random random(43);
  for (int round = 0; round < 1000; ++round) {
    const Layout layout = random_layout(random);
    const auto recovered = from_table(layout.shape(), table(layout));
    CAPTURE(to_string(layout), layout.shape());
    REQUIRE(recovered);
    REQUIRE(table(*recovered) == table(layout));
    if (!layout.is_ragged()) REQUIRE(*recovered == Layout(layout.shape(), layout.digits()));
  }
}

TEST_CASE("from_table recovers plans, ragged ones included", "[layout]") {
  CHECK(from_table({64, 96}, table(split({64, 96}, 256, 4))) == split({64, 96}, 256, 4));
  CHECK(from_table({1, 229}, table(split({1, 229}, 128, 1))) == split({1, 229}, 128, 1));
  CHECK(from_table({64, 64}, table(split({64, 64}, 96, 1))) == split({64, 64}, 96, 1));
  // Lanes beyond the row leave no trace in a table.
  const auto row = from_table({3, 50}, table(split({3, 50}, 64, 1)));
  REQUIRE(row);
  CHECK(row->padded_extent(1) == 50);
}

TEST_CASE("from_function gives nothing for maps without digits", "[layout]") {
  SECTION("exclusive or") {
    CHECK_FALSE(from_function({8, 8}, [](const Index& at) { return Place{at[0] ^ at[1], at[0]}; }));
  }
  SECTION("backwards") {
    CHECK_FALSE(from_function({8}, [](const Index& at) { return Place{7 - at[0], 0}; }));
    CHECK_FALSE(from_function({8}, [](const Index& at) { return Place{0, -at[0]}; }));
    CHECK_FALSE(from_function({4}, [](const Index& at) { return Place{at[0] == 1 ? 3 : 0, 0}; }));
  }
  SECTION("an offset") {
    CHECK_FALSE(from_function({8}, [](const Index& at) { return Place{at[0] + 1, 0}; }));
  }
  SECTION("thread and slot at once") {
    CHECK_FALSE(from_function({8}, [](const Index& at) { return Place{at[0], at[0]}; }));
  }
  SECTION("the flat split of a row that does not divide") {
    CHECK_FALSE(from_function({4, 6}, [](const Index& at) {
      return Place{(at[0] * 6 + at[1]) % 8, (at[0] * 6 + at[1]) / 8};
    }));
  }
  SECTION("digits along the axes, but not between them") {
    CHECK_FALSE(from_function({2, 2}, [](const Index& at) {
      return Place{at[0] + 2 * at[1] + 4 * at[0] * at[1], 0};
    }));
  }
}

TEST_CASE("from_table wants one place per element", "[layout]") {
  try {
    from_table({2, 3}, std::vector<Place>(5));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: from_table: argument 'places' does not list every element once\n"
          "  expected  6 places for 2 x 3\n"
          "  got       5");
  }
  CHECK_THROWS_AS(from_function({2, 0}, [](const Index&) { return Place{}; }), Error);
}

}  // namespace tessera::layout
