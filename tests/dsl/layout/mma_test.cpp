// Operand layouts of the tensor-core instructions against the tables of the PTX ISA, written out
// here lane by lane.

#include "dsl/layout/mma.h"

#include <functional>
#include <string>

#include "dsl/base/error.h"
#include "dsl/layout/mma.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

const WarpGrid kGrids[] = {{1, 1}, {2, 2}, {4, 1}, {1, 4}, {2, 4}};

struct Cell {
  int64_t row, column;
};

// mma.sync m16n8k8 (tf32), m16n8k16 (16 bits), m16n8k32 (8 bits). Element i of a lane, as the ISA's
// section on each shape lists it; groupID = lane / 4, threadID_in_group = lane % 4.

Cell accumulator_cell(int64_t lane, int64_t i) {
  return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1)};
}

Cell left_cell(int bits, int64_t lane, int64_t i) {
  const int64_t group = lane / 4, in_group = lane % 4;
  if (bits == 32)
    return {i == 0 || i == 2 ? group : group + 8, i == 0 || i == 1 ? in_group : in_group + 4};
  if (bits == 16) {
    return {i < 2 || (i >= 4 && i < 6) ? group : group + 8,
            i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
  }
  return {i < 4 || (i >= 8 && i < 12) ? group : group + 8,
          i < 8 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16};
}

Cell right_cell(int bits, int64_t lane, int64_t i) {  // row = k, column = n
  const int64_t group = lane / 4, in_group = lane % 4;
  if (bits == 32) return {i == 0 ? in_group : in_group + 4, group};
  if (bits == 16) return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
  return {i < 4 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16, group};
}

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

bool owns(const Layout& layout, Cell cell, int64_t thread, int64_t slot) {
  return owners(layout, {cell.row, cell.column}).contains(thread) &&
         layout.place({cell.row, cell.column}).slot == slot;
}

}  // namespace

TEST_CASE("a tile of equal parts holds each part as a tile of its own, further slots along",
          "[layout]") {
  struct Pair {
    Layout whole, part;
    int64_t rows, columns;  // parts
  };
  for (const WarpGrid grid : kGrids) {
    const int64_t m = 32 * grid.rows, n = 24 * grid.columns, wide = 64 * grid.rows;
    const Pair pairs[] = {
        {mma_accumulator(3 * m, 2 * n, grid, {3, 2}), mma_accumulator(m, n, grid), 3, 2},
        {mma_left(3 * m, 64, 16, grid, 3), mma_left(m, 64, 16, grid), 3, 1},
        {mma_right(64, 2 * n, 8, grid, 2), mma_right(64, n, 8, grid), 1, 2},
        {wgmma_accumulator(2 * wide, 2 * n, grid, {2, 2}), wgmma_accumulator(wide, n, grid), 2, 2},
        {wgmma_left(2 * wide, 64, 16, grid, 2), wgmma_left(wide, 64, 16, grid), 2, 1}};
    for (const Pair& pair : pairs) {
      CAPTURE(grid.rows, grid.columns, to_string(pair.whole));
      CHECK_FALSE(find_collision(pair.whole));
      CHECK(pair.whole.num_slots() == pair.part.num_slots() * pair.rows * pair.columns);
      const std::vector<int64_t>& shape = pair.part.shape();
      for (const std::vector<int64_t>& at : all_points(pair.whole.shape())) {
        const std::vector<int64_t> in_part = {at[0] % shape[0], at[1] % shape[1]};
        REQUIRE(owners(pair.whole, at) == owners(pair.part, in_part));
      }
    }
  }
  // One warp along an axis holds any range of it: then parts make no difference.
  CHECK(mma_accumulator(64, 64, {4, 1}, {1, 4}) == mma_accumulator(64, 64, {4, 1}));
  CHECK(mma_left(64, 64, 16, {1, 4}, 2) == mma_left(64, 64, 16, {1, 4}));
}

TEST_CASE("equal parts of an axis", "[layout]") {
  CHECK(equal_parts(256, 64, 64, 2) == 4);
  CHECK(equal_parts(256, 0, 256, 2) == 1);
  CHECK(equal_parts(256, 64, 128, 2) == 0);
  CHECK(equal_parts(256, 96, 96, 2) == 0);
  CHECK(equal_parts(256, 16, 48, 1) == 1);
}

TEST_CASE("products of mma over warp grids equal the PTX tables (L03, L09)", "[layout]") {
  for (const WarpGrid grid : kGrids) {
    for (const int64_t tiles : {1, 3}) {  // per warp, along rows; two along columns
      const Layout layout = mma_accumulator(16 * tiles * grid.rows, 16 * grid.columns, grid);
      CAPTURE(grid.rows, grid.columns, tiles);
      CHECK(layout.num_threads() == 32 * grid.rows * grid.columns);
      CHECK(layout.num_slots() == 8 * tiles);
      CHECK(layout.num_replicas() == 1);
      CHECK_FALSE(find_collision(layout));
      for (int64_t warp = 0; warp < grid.rows * grid.columns; ++warp) {
        for (int64_t lane = 0; lane < 32; ++lane) {
          for (int64_t slot = 0; slot < 8 * tiles; ++slot) {
            const Cell in_tile = accumulator_cell(lane, slot % 4);
            const Cell cell{(warp % grid.rows * tiles + slot / 8) * 16 + in_tile.row,
                            warp / grid.rows * 16 + slot / 4 % 2 * 8 + in_tile.column};
            REQUIRE(owns(layout, cell, warp * 32 + lane, slot));
          }
        }
      }
    }
  }
  // E7 of the language's examples.
  CHECK(to_string(mma_accumulator(32, 32, {2, 2})) ==
        "thread = (j / 16) * 64 + (i / 16) * 32 + (i % 8) * 4 + (j / 2) % 4, slot = ((j / 8) % 2) "
        "* 4 + ((i / 8) % 2) * 2 + j % 2");
}

TEST_CASE("left operands of mma equal the PTX tables, one copy per warp column (L09)", "[layout]") {
  for (const int bits : {8, 16, 32}) {
    const int64_t depth = 256 / bits, registers = 4 * 32 / bits;
    for (const WarpGrid grid : kGrids) {
      CAPTURE(bits, grid.rows, grid.columns);
      const Layout layout = mma_left(32 * grid.rows, 2 * depth, bits, grid);
      CHECK(layout.num_threads() == 32 * grid.rows * grid.columns);
      CHECK(layout.num_replicas() == grid.columns);
      CHECK(layout.num_slots() == 4 * registers);
      CHECK_FALSE(find_collision(layout));
      for (int64_t warp = 0; warp < grid.rows * grid.columns; ++warp) {
        for (int64_t lane = 0; lane < 32; ++lane) {
          for (int64_t slot = 0; slot < 4 * registers; ++slot) {
            const Cell in_tile = left_cell(bits, lane, slot % registers);
            const int64_t tile = slot / registers;  // two steps of k, then the second row tile
            const Cell cell{(warp % grid.rows * 2 + tile / 2) * 16 + in_tile.row,
                            tile % 2 * depth + in_tile.column};
            REQUIRE(owns(layout, cell, warp * 32 + lane, slot));
          }
        }
      }
    }
  }
}

TEST_CASE("right operands of mma equal the PTX tables, one copy per warp row (L09)", "[layout]") {
  for (const int bits : {8, 16, 32}) {
    const int64_t depth = 256 / bits, registers = 2 * 32 / bits;
    for (const WarpGrid grid : kGrids) {
      CAPTURE(bits, grid.rows, grid.columns);
      const Layout layout = mma_right(2 * depth, 16 * grid.columns, bits, grid);
      CHECK(layout.num_threads() == 32 * grid.rows * grid.columns);
      CHECK(layout.num_replicas() == grid.rows);
      CHECK_FALSE(find_collision(layout));
      for (int64_t warp = 0; warp < grid.rows * grid.columns; ++warp) {
        for (int64_t lane = 0; lane < 32; ++lane) {
          for (int64_t slot = 0; slot < 4 * registers; ++slot) {
            const Cell in_tile = right_cell(bits, lane, slot % registers);
            const int64_t tile = slot / registers;  // two steps of k, then the second column tile
            const Cell cell{tile % 2 * depth + in_tile.row,
                            (warp / grid.rows * 2 + tile / 2) * 8 + in_tile.column};
            REQUIRE(owns(layout, cell, warp * 32 + lane, slot));
          }
        }
      }
    }
  }
}

TEST_CASE("wgmma operands over groups of four warps (L03, L09)", "[layout]") {
  // wgmma m64nNk16, the product: warp w of the group holds rows 16 w .. 16 w + 15, laid out as by mma.
  for (const WarpGrid groups : {WarpGrid{1, 1}, WarpGrid{1, 2}, WarpGrid{2, 1}}) {
    CAPTURE(groups.rows, groups.columns);
    const Layout product = wgmma_accumulator(64 * groups.rows, 64 * groups.columns, groups);
    const Layout left = wgmma_left(64 * groups.rows, 32, 16, groups);
    CHECK(product.num_threads() == 128 * groups.rows * groups.columns);
    CHECK(left.num_replicas() == groups.columns);
    CHECK_FALSE(find_collision(product));
    CHECK_FALSE(find_collision(left));
    for (int64_t thread = 0; thread < product.num_threads(); ++thread) {
      const int64_t group = thread / 128, warp = thread / 32 % 4, lane = thread % 32;
      for (int64_t slot = 0; slot < 32; ++slot) {
        const Cell in_tile = accumulator_cell(lane, slot % 4);
        REQUIRE(owns(product,
                     {group % groups.rows * 64 + warp * 16 + in_tile.row,
                      group / groups.rows * 64 + slot / 4 * 8 + in_tile.column},
                     thread, slot));
      }
      for (int64_t slot = 0; slot < 16; ++slot) {
        const Cell in_tile = left_cell(16, lane, slot % 8);
        REQUIRE(owns(
            left,
            {group % groups.rows * 64 + warp * 16 + in_tile.row, slot / 8 * 16 + in_tile.column},
            thread, slot));
      }
    }
  }
  const Layout e6 = wgmma_accumulator(64, 128, {1, 2});
  CHECK(e6.place({37, 77}) == Place{214, 5});
  CHECK(e6.place({0, 64}) == Place{128, 0});
}

TEST_CASE("a product that the warps do not divide is explained", "[layout]") {
  const auto contains = [](const std::string& message, const std::string& part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  contains(error_of([] {
             mma_accumulator(24, 32, {1, 1});
           }),
           "argument 'm' is no whole number of instructions for each warp");
  contains(error_of([] {
             mma_accumulator(24, 32, {1, 1});
           }),
           "a multiple of 16 (16 per instruction x 1 along the grid)");
  contains(error_of([] { mma_left(32, 24, 16, {1, 1}); }), "argument 'k'");
  contains(error_of([] { mma_right(32, 32, 4, {1, 1}); }), "8, 16 or 32");
  contains(error_of([] { mma_accumulator(32, 32, {0, 1}); }), "has no warps");
}

}  // namespace tessera::layout
