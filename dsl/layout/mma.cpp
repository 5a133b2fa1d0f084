#include "dsl/layout/mma.h"

#include <fmt/format.h>

#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

/// The number of parts of `unit` elements that each of `owners` gets along one axis.
int64_t parts(const char* op, const char* argument, int64_t extent, int64_t unit, int64_t owners) {
  if (owners < 1) reject(op, "grid", "has no warps", "from 1 up", fmt::format("{}", owners));
  if (extent < 1 || extent % (unit * owners) != 0) {
    reject(op, argument, "is no whole number of instructions for each warp",
           fmt::format("a multiple of {} ({} per instruction x {} along the grid)", unit * owners,
                       unit, owners),
           fmt::format("{}", extent));
  }
  return extent / (unit * owners);
}

int64_t per_register(const char* op, int element_bits) {
  if (element_bits != 8 && element_bits != 16 && element_bits != 32) {
    reject(op, "element_bits", "is not an operand's width", "8, 16 or 32",
           fmt::format("{}", element_bits));
  }
  return 32 / element_bits;
}

}  // namespace

int64_t equal_parts(int64_t whole, int64_t first, int64_t extent, int64_t owners) {
  if (owners == 1 || extent == whole) return 1;
  return whole % extent == 0 && first % extent == 0 ? whole / extent : 0;
}

// In each layout the digits of an axis are those of an instruction, the instructions of a warp, the
// warps, the parts.

Layout mma_accumulator(int64_t m, int64_t n, WarpGrid grid, GridParts repeats) {
  const char* const op = "mma_accumulator";
  const int64_t row_tiles = parts(op, "m", m, 16, grid.rows * repeats.rows);
  const int64_t column_tiles = parts(op, "n", n, 8, grid.columns * repeats.columns);
  const int64_t row_slots = 4 * column_tiles * repeats.columns;
  const int rows = grid.depths > 1 ? 1 : 0, columns = rows + 1;  // axes
  std::vector<int64_t> shape = {m, n};
  std::vector<Digit> digits = {
      {rows, 1, 8, 4, 0},
      {rows, 8, 2, 0, 2},
      {rows, 16, row_tiles, 0, row_slots},
      {rows, 16 * row_tiles, grid.rows, 32, 0},
      {rows, 16 * row_tiles * grid.rows, repeats.rows, 0, row_slots * row_tiles},
      {columns, 1, 2, 0, 1},
      {columns, 2, 4, 1, 0},
      {columns, 8, column_tiles, 0, 4},
      {columns, 8 * column_tiles, grid.columns, 32 * grid.rows, 0},
      {columns, 8 * column_tiles * grid.columns, repeats.columns, 0, 4 * column_tiles}};
  if (grid.depths > 1) {
    shape.insert(shape.begin(), grid.depths);
    digits.push_back({0, 1, grid.depths, 32 * grid.rows * grid.columns, 0});
  }
  return Layout(std::move(shape), std::move(digits));
}

Layout mma_left(int64_t m, int64_t k, int element_bits, WarpGrid grid, int64_t row_parts) {
  const int64_t e = per_register("mma_left", element_bits);
  const int64_t row_tiles = parts("mma_left", "m", m, 16, grid.rows * row_parts);
  const int64_t depth_tiles = parts("mma_left", "k", k, 8 * e, grid.depths);
  const int64_t row_slots = 4 * e * depth_tiles;
  return Layout({m, k},
                {{0, 1, 8, 4, 0},
                 {0, 8, 2, 0, e},
                 {0, 16, row_tiles, 0, row_slots},
                 {0, 16 * row_tiles, grid.rows, 32, 0},
                 {0, 16 * row_tiles * grid.rows, row_parts, 0, row_slots * row_tiles},
                 {1, 1, e, 0, 1},
                 {1, e, 4, 1, 0},
                 {1, 4 * e, 2, 0, 2 * e},
                 {1, 8 * e, depth_tiles, 0, 4 * e},
                 {1, 8 * e * depth_tiles, grid.depths, 32 * grid.rows * grid.columns, 0}},
                {{grid.columns, 32 * grid.rows}});
}

Layout mma_right(int64_t k, int64_t n, int element_bits, WarpGrid grid, int64_t column_parts) {
  const int64_t e = per_register("mma_right", element_bits);
  const int64_t depth_tiles = parts("mma_right", "k", k, 8 * e, grid.depths);
  const int64_t column_tiles = parts("mma_right", "n", n, 8, grid.columns * column_parts);
  const int64_t column_slots = 2 * e * depth_tiles;
  return Layout(
      {k, n},
      {{0, 1, e, 0, 1},
       {0, e, 4, 1, 0},
       {0, 4 * e, 2, 0, e},
       {0, 8 * e, depth_tiles, 0, 2 * e},
       {0, 8 * e * depth_tiles, grid.depths, 32 * grid.rows * grid.columns, 0},
       {1, 1, 8, 4, 0},
       {1, 8, column_tiles, 0, column_slots},
       {1, 8 * column_tiles, grid.columns, 32 * grid.rows, 0},
       {1, 8 * column_tiles * grid.columns, column_parts, 0, column_slots * column_tiles}},
      {{grid.rows, 32}});
}

Layout wgmma_accumulator(int64_t m, int64_t n, WarpGrid groups, GridParts repeats) {
  const char* const op = "wgmma_accumulator";
  const int64_t row_tiles = parts(op, "m", m, 64, groups.rows * repeats.rows);
  const int64_t column_tiles = parts(op, "n", n, 8, groups.columns * repeats.columns);
  const int64_t row_slots = 4 * column_tiles * repeats.columns;
  return Layout({m, n},
                {{0, 1, 8, 4, 0},
                 {0, 8, 2, 0, 2},
                 {0, 16, 4, 32, 0},
                 {0, 64, row_tiles, 0, row_slots},
                 {0, 64 * row_tiles, groups.rows, 128, 0},
                 {0, 64 * row_tiles * groups.rows, repeats.rows, 0, row_slots * row_tiles},
                 {1, 1, 2, 0, 1},
                 {1, 2, 4, 1, 0},
                 {1, 8, column_tiles, 0, 4},
                 {1, 8 * column_tiles, groups.columns, 128 * groups.rows, 0},
                 {1, 8 * column_tiles * groups.columns, repeats.columns, 0, 4 * column_tiles}});
}

Layout wgmma_left(int64_t m, int64_t k, int element_bits, WarpGrid groups, int64_t row_parts) {
  const int64_t e = per_register("wgmma_left", element_bits);
  const int64_t row_tiles = parts("wgmma_left", "m", m, 64, groups.rows * row_parts);
  const int64_t depth_tiles = parts("wgmma_left", "k", k, 8 * e, 1);
  const int64_t row_slots = 4 * e * depth_tiles;
  return Layout({m, k},
                {{0, 1, 8, 4, 0},
                 {0, 8, 2, 0, e},
                 {0, 16, 4, 32, 0},
                 {0, 64, row_tiles, 0, row_slots},
                 {0, 64 * row_tiles, groups.rows, 128, 0},
                 {0, 64 * row_tiles * groups.rows, row_parts, 0, row_slots * row_tiles},
                 {1, 1, e, 0, 1},
                 {1, e, 4, 1, 0},
                 {1, 4 * e, 2, 0, 2 * e},
                 {1, 8 * e, depth_tiles, 0, 4 * e}},
                {{groups.columns, 128 * groups.rows}});
}

}  // namespace tessera::layout
