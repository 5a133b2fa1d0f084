// reduce, reshape and replicate against their definitions on random layouts.

#include <numeric>

#include "dsl/base/error.h"
#include "dsl/layout/layout.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

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

/// Another shape with the same number of elements: extents split in two, merged, ones put in.
std::vector<int64_t> random_reshape(Random& random, std::vector<int64_t> shape) {
  for (int64_t steps = pick(random, 1, 4); steps > 0; --steps) {
    const auto last = static_cast<int64_t>(shape.size()) - 1;
    const auto axis = static_cast<std::ptrdiff_t>(pick(random, 0, std::max<int64_t>(last, 0)));
    switch (pick(random, 0, 2)) {
      case 0:
        shape.insert(shape.begin() + axis, 1);
        break;
      case 1: {
        const int64_t extent = shape[static_cast<size_t>(axis)];
        const int64_t factor = pick_one(random, {2, 3, 4, 5});
        if (extent % factor != 0) break;
        shape[static_cast<size_t>(axis)] = factor;
        shape.insert(shape.begin() + axis, extent / factor);
        break;
      }
      default:
        if (last < 1 || axis == last) break;
        shape[static_cast<size_t>(axis)] *= shape[static_cast<size_t>(axis + 1)];
        shape.erase(shape.begin() + axis + 1);
    }
  }
  return shape;
}

std::vector<Place> places(const Layout& layout, int64_t copy) {
  std::vector<Place> result;
  for (const auto& point : all_points(layout.shape())) result.push_back(layout.place(point, copy));
  return result;
}

}  // namespace

TEST_CASE("a result lives in exactly the threads that held its row", "[layout]") {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const Layout source = random_layout(random);
    const auto rank = static_cast<int64_t>(source.shape().size());
    const auto axis = static_cast<int>(pick(random, 0, rank - 1));
    const Layout result = reduce(source, axis);
    CAPTURE(axis, to_string(source), to_string(result));
    std::vector<int64_t> shape = source.shape();
    shape.erase(shape.begin() + axis);
    REQUIRE(result.shape() == shape);
    REQUIRE(is_injective(result));
    int64_t registers = 1;  // slots close up
    for (const Digit& digit : result.digits()) registers *= digit.slot != 0 ? digit.extent : 1;
    REQUIRE(result.num_slots() == registers);
    for (const auto& point : all_points(result.shape())) {
      std::set<int64_t> held;
      for (int64_t i = 0; i < source.padded_extent(axis); ++i) {
        std::vector<int64_t> row = point;
        row.insert(row.begin() + axis, i);
        held.merge(owners(source, row));
      }
      if (owners(result, point) != held) FAIL("other owners");
    }
  }
}

TEST_CASE("reduce to rank 0 and of a ragged tile", "[layout]") {
  const Layout all = reduce(split({229}, 128, 1), 0);
  CHECK(all == Layout({}, {}, {{128, 1}}));
  const Layout rows = reduce(split({64, 96}, 256, 4), 1);
  CHECK(rows == Layout({64}, {{0, 1, 32, 8, 0}, {0, 32, 2, 0, 1}}, {{8, 1}}));
}

TEST_CASE("reshape keeps the place of every element", "[layout]") {
  Random random(17);
  int kept = 0;
  int ragged = 0;
  for (int round = 0; round < 1000; ++round) {
    const Layout source = random_layout(random);
    const std::vector<int64_t> shape = random_reshape(random, source.shape());
    const auto result = reshape(source, shape);
    CAPTURE(to_string(source), source.shape(), shape);
    if (!result) continue;
    ++kept;
    ragged += source.is_ragged() ? 1 : 0;
    REQUIRE(result->shape() == shape);
    for (int64_t copy = 0; copy < source.num_replicas(); ++copy) {
      REQUIRE(places(*result, copy) == places(source, copy));
    }
    REQUIRE(result->num_slots() == source.num_slots());
    REQUIRE(result->num_threads() == source.num_threads());
    REQUIRE(reshape(*result, source.shape()) == source);
  }
  CHECK(kept > 500);
  CHECK(ragged > 50);
}

TEST_CASE("reshape finds a map whenever there is one", "[layout]") {
  // Against recovery from the enumerated map, which knows nothing of digits. Without padding the
  // two agree exactly.
  Random random(23);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    const Layout source = random_layout(random);
    if (source.is_ragged()) continue;
    const std::vector<int64_t> shape = random_reshape(random, source.shape());
    const auto result = reshape(source, shape);
    const auto recovered = from_table(shape, places(source, 0));
    CAPTURE(to_string(source), source.shape(), shape);
    // The table may also be explained by digits that do not divide the new axis.
    if (recovered && !recovered->is_ragged()) {
      REQUIRE(result);
      REQUIRE(Layout(shape, result->digits()) == *recovered);
    } else {
      REQUIRE_FALSE(result);
      ++refused;
    }
  }
  CHECK(refused > 10);
}

TEST_CASE("reshape and padding", "[layout]") {
  const Layout line = split({1, 229}, 128, 1);
  SECTION("units come and go") {
    CHECK(reshape(line, {229})->padded_extent(0) == 256);
    CHECK(reshape(line, {1, 1, 229, 1})->padded_extent(2) == 256);
    CHECK(reshape(*reshape(line, {229}), {1, 229}) == line);
  }
  SECTION("the outermost axis keeps the padding") {
    const Layout rows = split({6, 8}, 32, 1);  // six rows over four at a time
    REQUIRE(padded_shape(rows) == std::vector<int64_t>{8, 8});
    const auto split = reshape(rows, {3, 2, 8});
    REQUIRE(split);
    CHECK(padded_shape(*split) == std::vector<int64_t>{4, 2, 8});
    CHECK(padded_shape(*reshape(rows, {48})) == std::vector<int64_t>{64});
  }
  SECTION("padding inside cannot become padding at the end") {
    const Layout wide = split({4, 50}, 64, 1);
    REQUIRE(wide.padded_extent(1) == 64);
    CHECK_FALSE(reshape(wide, {200}));
    CHECK_FALSE(reshape(wide, {2, 100}));
    CHECK(reshape(wide, {2, 2, 50}));
  }
  SECTION("a digit that straddles") {
    CHECK_FALSE(reshape(Layout({12}, {{0, 1, 4, 1, 0}, {0, 4, 3, 0, 1}}), {2, 6}));
    CHECK(reshape(Layout({12}, {{0, 1, 4, 1, 0}, {0, 4, 3, 0, 1}}), {3, 2, 2}));
  }
}

TEST_CASE("replicate adds copies behind the last thread", "[layout]") {
  Random random(29);
  for (int round = 0; round < 200; ++round) {
    const Layout source = random_layout(random);
    const int64_t times = pick(random, 1, 4);
    const Layout result = replicate(source, times);
    REQUIRE(result.num_replicas() == source.num_replicas() * times);
    REQUIRE(result.num_threads() == source.num_threads() * times);
    REQUIRE(is_injective(result));
    for (const auto& point : all_points(source.shape())) {
      std::set<int64_t> expected;
      for (const int64_t thread : owners(source, point)) {
        for (int64_t k = 0; k < times; ++k) expected.insert(thread + k * source.num_threads());
      }
      if (owners(result, point) != expected) FAIL("other owners: " << to_string(result));
    }
  }
}

TEST_CASE("transforms explain wrong arguments", "[layout]") {
  const Layout layout = split({4, 8}, 32, 1);
  CHECK(refusal([&] { reduce(layout, 2); }) ==
        "tessera: reduce: argument 'axis' is not an axis of the layout\n"
        "  expected  0 .. 1\n"
        "  got       2");
  CHECK(refusal([&] { reduce(Layout(), 0); }) ==
        "tessera: reduce: argument 'axis' is not an axis of the layout\n"
        "  expected  an axis, but the rank is 0\n"
        "  got       0");
  CHECK(refusal([&] {
          reshape(layout, {4, 9});
        }) ==
        "tessera: reshape: argument 'shape' has another number of elements\n"
        "  expected  32 elements as in 4 x 8\n"
        "  got       4 x 9");
  CHECK(refusal([&] { replicate(layout, 0); }) ==
        "tessera: replicate: argument 'times' is out of range\n"
        "  expected  from 1 up\n"
        "  got       0");
  CHECK(refusal([&] {
          contains(layout, split({8, 4}, 32, 1));
        }) ==
        "tessera: contains: argument 'small' has another shape\n"
        "  expected  4 x 8\n"
        "  got       8 x 4");
}

}  // namespace tessera::layout
