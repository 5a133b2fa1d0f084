// Layouts of tensor-core operands, loops and user formulas, given as functions.

#include "dsl/layout/layout.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

using Index = std::vector<int64_t>;

Layout wgmma_accumulator() {  // 64 x 128, two warp groups along N
  return from_function({64, 128},
                       [](const Index& at) {
                         const int64_t i = at[0], j = at[1];
                         return Place{j / 64 * 128 + i / 16 * 32 + i % 8 * 4 + j % 8 / 2,
                                      j % 64 / 8 * 4 + i % 16 / 8 * 2 + j % 2};
                       })
      .value();
}

Layout mma_a_fragment() {  // tf32, 32 x 256, two warps along M, copies for two along N
  const auto one_warp_column = from_function({32, 256}, [](const Index& at) {
    const int64_t i = at[0], j = at[1];
    return Place{i / 16 * 32 + i % 8 * 4 + j % 4, j / 4 * 2 + i % 16 / 8};
  });
  return replicate(one_warp_column.value(), 2);
}

}  // namespace

TEST_CASE("wgmma accumulator 64 x 128 over two warp groups (L03, E6)", "[layout]") {
  const Layout layout = wgmma_accumulator();
  CHECK(layout.num_threads() == 256);
  CHECK(layout.num_slots() == 32);
  CHECK(layout.place({37, 77}) == Place{214, 5});
  CHECK(layout.place({0, 0}) == Place{0, 0});
  CHECK(layout.place({8, 0}) == Place{0, 2});
  CHECK(layout.place({0, 8}) == Place{0, 4});
  CHECK(layout.place({16, 0}) == Place{32, 0});
  CHECK(layout.place({0, 64}) == Place{128, 0});
  CHECK(layout.place({63, 127}) == Place{255, 31});
  CHECK_FALSE(find_collision(layout));

  // Row maximum: copies rep % 2 in the other group, rep / 2 in the quad.
  const Layout rows = reduce(layout, 1);
  CHECK(rows ==
        Layout({64}, {{0, 1, 8, 4, 0}, {0, 8, 2, 0, 1}, {0, 16, 4, 32, 0}}, {{2, 128}, {4, 1}}));
  CHECK(rows.num_replicas() == 8);
  CHECK(rows.num_slots() == 2);
}

TEST_CASE("tf32 mma fragments of four warps (L03, E7)", "[layout]") {
  const Layout a = mma_a_fragment();
  CHECK(a.replicas() == std::vector<Replica>{{2, 64}});
  CHECK(owners(a, {21, 200}) == std::set<int64_t>{52, 116});
  CHECK(a.place({21, 200}).slot == 100);
  CHECK(a.num_slots() == 128);

  const auto c = from_function({32, 32}, [](const Index& at) {
    const int64_t i = at[0], j = at[1];
    return Place{j / 16 * 64 + i / 16 * 32 + i % 8 * 4 + j % 8 / 2,
                 j % 16 / 8 * 4 + i % 16 / 8 * 2 + j % 2};
  });
  REQUIRE(c);
  CHECK(c->num_threads() == 128);
  CHECK(c->num_slots() == 8);
  CHECK(c->num_replicas() == 1);
  CHECK(c->place({21, 27}) == Place{64 + 32 + 5 * 4 + 1, 4 + 1});

  // Sums of squares per row and column class (32 x 4), then per row.
  const auto classes = reshape(a, {32, 64, 4});
  REQUIRE(classes);
  const Layout squares = reduce(*classes, 1);
  CHECK(squares == Layout({32, 4},
                          {{0, 1, 8, 4, 0}, {0, 8, 2, 0, 1}, {0, 16, 2, 32, 0}, {1, 1, 4, 1, 0}},
                          {{2, 64}}));
  CHECK(reduce(squares, 1).replicas() == std::vector<Replica>{{4, 1}, {2, 64}});
}

TEST_CASE("row and column vectors that a loop over 64 x 128 reads (L02, L03, E10)", "[layout]") {
  const Layout tile = split({64, 128}, 256, 4);
  const Layout row_sum = reduce(tile, 1);
  CHECK(row_sum == Layout({64}, {{0, 1, 8, 32, 0}, {0, 8, 8, 0, 1}}, {{32, 1}}));
  CHECK(row_sum.num_replicas() == 32);
  CHECK(row_sum.num_slots() == 8);
  CHECK(is_injective(row_sum));
  const Layout column_sum = reduce(tile, 0);
  CHECK(column_sum == Layout({128}, {{0, 1, 4, 0, 1}, {0, 4, 32, 1, 0}}, {{8, 32}}));
  CHECK(column_sum.num_replicas() == 8);
  CHECK(column_sum.num_slots() == 4);
  CHECK(is_injective(column_sum));
}

TEST_CASE("sums of 4 x 4 matrices stay in their quad (L03, E8)", "[layout]") {
  const Layout tile = split({32, 4, 4}, 128, 4);
  CHECK(reduce(tile, 2) == Layout({32, 4}, {{0, 1, 32, 4, 0}, {1, 1, 4, 1, 0}}));
  CHECK(reduce(tile, 1) == Layout({32, 4}, {{0, 1, 32, 4, 0}, {1, 1, 4, 0, 1}}, {{4, 1}}));
}

TEST_CASE("groups of 128 columns of 4 x 1024 (L03, L04, E9)", "[layout]") {
  const Layout tile = split({4, 1024}, 128, 16);
  const auto grouped = reshape(tile, {4, 8, 128});
  REQUIRE(grouped);
  CHECK(*grouped == Layout({4, 8, 128}, {{0, 1, 2, 64, 0},
                                         {0, 2, 2, 0, 16},
                                         {1, 1, 8, 8, 0},
                                         {2, 1, 16, 0, 1},
                                         {2, 16, 8, 1, 0}}));
  for (const auto& point : all_points(tile.shape())) {
    REQUIRE(grouped->place({point[0], point[1] / 128, point[1] % 128}) == tile.place(point));
  }
  const Layout amax = reduce(*grouped, 2);
  CHECK(amax == Layout({4, 8}, {{0, 1, 2, 64, 0}, {0, 2, 2, 0, 1}, {1, 1, 8, 8, 0}}, {{8, 1}}));
  CHECK(owners(amax, {3, 5}) == std::set<int64_t>{104, 105, 106, 107, 108, 109, 110, 111});
  CHECK(amax.place({3, 5}).slot == 1);
}

TEST_CASE("eight integers in every thread (E13)", "[layout]") {
  const Layout layout = replicated({8}, 128);
  CHECK(layout == Layout({8}, {{0, 1, 8, 0, 1}}, {{128, 1}}));
  CHECK(owners(layout, {7}).size() == 128);
}

TEST_CASE("a user layout: rows in turn over one warp (E16)", "[layout]") {
  const auto layout = from_function({64, 24}, [](const Index& at) {
    return Place{at[0] % 32, at[0] / 32 * 24 + at[1]};
  });
  REQUIRE(layout);
  CHECK(layout->num_threads() == 32);
  CHECK(layout->num_slots() == 48);
  CHECK(to_string(*layout) == "thread = i % 32, slot = (i / 32) * 24 + j");
}

}  // namespace tessera::layout
