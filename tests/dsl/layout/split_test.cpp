// The default split: the documented formulas, and properties over a sweep of shapes.

#include <numeric>

#include "dsl/base/error.h"
#include "dsl/layout/layout.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

/// Compares the plan with a formula on every point of the shape.
template <class Fn>
void check_formula(const Layout& layout, const Fn& fn) {
  for (const auto& point : all_points(layout.shape())) {
    if (layout.place(point) == fn(point)) continue;
    CAPTURE(point, to_string(layout));
    FAIL("the plan differs from the formula");
  }
}

std::string refusal(std::vector<int64_t> shape, int64_t threads, int64_t vector) {
  try {
    split(shape, threads, vector);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("plan of 64 x 128 over 256 threads, vector 4 (L01)", "[layout]") {
  const Layout layout = split({64, 128}, 256, 4);
  CHECK(layout.num_threads() == 256);
  CHECK(layout.num_slots() == 32);
  CHECK(layout.num_replicas() == 1);
  CHECK_FALSE(layout.is_ragged());
  CHECK(layout.place({37, 77}) == Place{179, 17});
  CHECK(layout.place({63, 127}) == Place{255, 31});
  check_formula(layout, [](const auto& at) {
    return Place{at[0] % 8 * 32 + at[1] / 4, at[0] / 8 * 4 + at[1] % 4};
  });
  for (int64_t t = 0; t < 256; ++t) {
    for (int64_t s = 0; s < 32; ++s) {
      REQUIRE(layout.element(t, s) == std::vector<int64_t>{s / 4 * 8 + t / 32, t % 32 * 4 + s % 4});
    }
  }
}

TEST_CASE("plans that the flat split describes (L03, E5)", "[layout]") {
  SECTION("8 x 1024 over 256, vector 4") {
    check_formula(split({8, 1024}, 256, 4), [](const auto& at) {
      return Place{at[1] / 4, at[0] * 4 + at[1] % 4};
    });
  }
  SECTION("64 x 128 over 256, vector 8") {
    const Layout layout = split({64, 128}, 256, 8);
    CHECK(layout.place({37, 77}) == Place{89, 21});
    check_formula(layout, [](const auto& at) {
      return Place{at[0] % 16 * 16 + at[1] / 8, at[0] / 16 * 8 + at[1] % 8};
    });
  }
  SECTION("32 x 4 x 4 over 128, vector 4") {
    check_formula(split({32, 4, 4}, 128, 4), [](const auto& at) {
      return Place{at[0] * 4 + at[1], at[2]};
    });
  }
  SECTION("4 x 1024 over 128, vector 16") {
    const Layout layout = split({4, 1024}, 128, 16);
    CHECK(layout.place({3, 700}) == Place{107, 28});
    check_formula(layout, [](const auto& at) {
      return Place{at[0] % 2 * 64 + at[1] / 16, at[0] / 2 * 16 + at[1] % 16};
    });
  }
  SECTION("1024 over 128, vector 4") {
    check_formula(split({1024}, 128, 4), [](const auto& at) {
      return Place{at[0] / 4 % 128, at[0] / 512 * 4 + at[0] % 4};
    });
  }
  SECTION("1 x 7168 over 128, vector 8") {
    check_formula(split({1, 7168}, 128, 8), [](const auto& at) {
      return Place{at[1] / 8 % 128, at[1] / 1024 * 8 + at[1] % 8};
    });
  }
  SECTION("32 x 3 over 96") {
    check_formula(split({32, 3}, 96, 1), [](const auto& at) {
      return Place{at[0] * 3 + at[1], 0};
    });
  }
}

TEST_CASE("plans of ragged shapes", "[layout]") {
  SECTION("64 x 96 over 256, vector 4: all threads work, nothing is padded") {
    const Layout layout = split({64, 96}, 256, 4);
    CHECK_FALSE(layout.is_ragged());
    CHECK(layout.num_slots() == 24);
    check_formula(layout, [](const auto& at) {
      return Place{at[0] % 32 * 8 + at[1] / 4 % 8, at[0] / 32 * 12 + at[1] / 32 * 4 + at[1] % 4};
    });
  }
  SECTION("1 x 229 over 128") {
    const Layout layout = split({1, 229}, 128, 1);
    CHECK(layout.padded_extent(1) == 256);
    CHECK(layout.num_slots() == 2);
    check_formula(layout, [](const auto& at) { return Place{at[1] % 128, at[1] / 128}; });
    CHECK(layout.element(101, 1) == std::vector<int64_t>{0, 229});  // padding
  }
  SECTION("3 x 50 over 64: lanes beyond the row hold padding") {
    const Layout layout = split({3, 50}, 64, 1);
    CHECK(layout.padded_extent(1) == 64);
    check_formula(layout, [](const auto& at) { return Place{at[1], at[0]}; });
  }
  SECTION("64 x 64 over 96 threads: a third of 96 per row") {
    const Layout layout = split({64, 64}, 96, 1);
    CHECK(layout.padded_extent(0) == 66);
    check_formula(layout, [](const auto& at) {
      return Place{at[0] % 3 * 32 + at[1] % 32, at[0] / 3 * 2 + at[1] / 32};
    });
  }
  SECTION("5 x 96 over 256, vector 4: one unit per thread") {
    const Layout layout = split({5, 96}, 256, 4);
    CHECK(layout.num_slots() == 4);
    CHECK(padded_shape(layout) == std::vector<int64_t>{8, 128});
  }
}

TEST_CASE("threads that a plan does not need hold copies", "[layout]") {
  const Layout layout = split({32, 4}, 512, 4);
  CHECK(layout.replicas() == std::vector<Replica>{{16, 32}});
  CHECK(layout.place({5, 2}, 3) == Place{101, 2});
  const Layout thirds = split({32, 3}, 256, 1);
  CHECK(thirds.num_replicas() == 2);
  CHECK(padded_shape(thirds) == std::vector<int64_t>{32, 4});
  CHECK(split({1, 1}, 64, 1).replicas() == std::vector<Replica>{{64, 1}});
  CHECK(split({}, 64, 1).replicas() == std::vector<Replica>{{64, 1}});
}

TEST_CASE("plans over a sweep: injective, complete, frugal", "[layout]") {
  const int64_t threads = GENERATE(1, 7, 32, 48, 96, 128, 192, 256);
  const std::vector<std::vector<int64_t>> shapes = {
      {1},       {5},       {229},      {1000},       {1, 1},        {1, 96},      {3, 50},
      {7, 33},   {32, 3},   {64, 24},   {12, 128},    {100, 60},     {1, 4, 20},   {3, 5, 7},
      {4, 8, 4}, {9, 1, 8}, {16, 3, 1}, {2, 3, 4, 5}, {1, 1, 16, 4}, {3, 1, 1, 36}};
  for (const auto& shape : shapes) {
    for (const int64_t vector : {1, 2, 3, 4, 8}) {
      if (shape.back() % vector != 0) continue;
      const Layout layout = split(shape, threads, vector);
      CAPTURE(shape, threads, vector, to_string(layout));
      REQUIRE(layout.shape() == shape);
      REQUIRE(layout.num_threads() == threads);
      REQUIRE(is_injective(layout));
      REQUIRE_FALSE(find_collision(layout));
      // No register is left out, and padding stays below one pass along each axis.
      int64_t points = 1;
      for (const int64_t extent : padded_shape(layout)) points *= extent;
      REQUIRE(layout.num_slots() * threads == points * layout.num_replicas());
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        int64_t lanes = axis + 1 == shape.size() ? vector : 1;
        for (const Digit& digit : layout.digits()) {
          if (digit.axis == static_cast<int>(axis) && digit.thread != 0) lanes *= digit.extent;
        }
        REQUIRE(layout.padded_extent(static_cast<int>(axis)) - shape[axis] < lanes);
      }
      // A vector is one run of slots in one thread.
      for (auto point : all_points(shape)) {
        const Place place = layout.place(point);
        const int64_t at = point.back() % vector;
        point.back() -= at;
        const Place first = layout.place(point);
        if (place != Place{first.thread, first.slot + at} || first.slot % vector != 0) {
          FAIL("a vector is torn");
        }
      }
      // With power-of-two extents and threads nothing is wasted.
      const auto power_of_two = [](int64_t n) { return (n & (n - 1)) == 0; };
      int64_t units = 1;
      bool powers = power_of_two(threads);
      for (const int64_t extent : shape) {
        units *= extent;
        powers = powers && power_of_two(extent);
      }
      units /= vector;
      if (powers && power_of_two(vector)) {
        REQUIRE(layout.num_slots() == std::max<int64_t>(1, units / threads) * vector);
        REQUIRE(layout.num_replicas() == std::max<int64_t>(1, threads / units));
      }
    }
  }
}

TEST_CASE("a plan for a group of threads stays inside the group (L10)", "[layout]") {
  // A warp group [128, 256) adds its base to the plan over its own 128 threads.
  const Layout layout = split({64, 64}, 128, 8);
  for (const auto& point : all_points(layout.shape())) {
    const int64_t thread = 128 + layout.place(point).thread;
    REQUIRE(thread >= 128);
    REQUIRE(thread < 256);
  }
}

TEST_CASE("a full copy per thread", "[layout]") {
  const Layout layout = replicated({4, 6}, 48);
  CHECK(layout.num_replicas() == 48);
  CHECK(layout.num_slots() == 24);
  CHECK(layout.place({2, 5}, 31) == Place{31, 17});
  CHECK(replicated({8}, 1).replicas().empty());
}

TEST_CASE("a plan explains what it cannot split", "[layout]") {
  CHECK(refusal({4, 30}, 64, 4) ==
        "tessera: plan: argument 'vector' does not divide the last axis\n"
        "  expected  a divisor of 30\n"
        "  got       4");
  CHECK(refusal({4, 30}, 64, 0) ==
        "tessera: plan: argument 'vector' does not divide the last axis\n"
        "  expected  a divisor of 30\n"
        "  got       0");
  CHECK(refusal({4, 32}, 0, 4) ==
        "tessera: plan: argument 'threads' is out of range\n"
        "  expected  1 .. 65536\n"
        "  got       0");
  CHECK(refusal({4, -1}, 64, 1) ==
        "tessera: plan: argument 'shape' has an empty axis\n"
        "  expected  extents from 1 up\n"
        "  got       4 x -1");
  CHECK_THROWS_AS(replicated({4}, 0), Error);
}

}  // namespace tessera::layout
