// engram_sinkhorn_finalize: the scaled matrix with rows of norm alpha.
//
// Shapes   matrix, out [rows, columns], row_scale [rows], col_scale [columns]
// Dtypes   f32
// Method   as norm_fwd: the threads of a row hold it in registers between its sum and its store; short
//          rows stand several to a block. Every byte moves once, so the bound is bytes / copy bandwidth.
// Maths    x = (row_scale matrix) col_scale; out = x (alpha / (sqrt(sum of x^2) + eps)), the sum in the
//          order of norm_row.h
// Measured one H200, 262144 x 512: 262 us, 96 % of copy, 32768 x 4096 258, 97 %.
// Lost     runs of eight columns, 64 threads for 512 and eight tiles of a block 311 and 337; runs of four 290 and 277, in eight
//          blocks of an SM 272; a warp per row in eight tiles 267; two tiles of 4096 265.

#include <algorithm>
#include <utility>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using serving::NormRow;
using serving::RowTile;

struct Spec {
  int32_t columns;
  int16_t width, col_width;  // columns per access to the matrix, to col_scale
};

constexpr int64_t kManyBlocks = 2048;
constexpr int64_t kWarpColumns = 512;  // rows up to here are a warp's: no barrier

/// Runs of four columns: stores of eight would write half sectors.
RowTile row_tile(int64_t columns) {
  const int64_t threads = columns > kWarpColumns ? 256 : 32;
  return serving::pick_row_tile(columns, {.shares_blocks = true, .max_threads = threads, .run = 4});
}

/// Tiles of a block at most, which load col_scale once.
int64_t max_tiles(int64_t columns) {
  return columns > kWarpColumns ? 1 : 2;
}

/// Launch bound: rows of a warp leave registers for five blocks, longer ones for four.
int blocks_per_sm(int64_t columns) {
  constexpr int64_t kLongRow = 4096;
  return columns > kLongRow ? 0 : columns > kWarpColumns ? 4 : 5;
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const RowTile tile = row_tile(s.columns);
  Builder k("engram_sinkhorn_finalize");
  auto rows = k.dim("rows");
  auto matrix = k.input("matrix", DType::f32, {rows, s.columns}, {.align = int64_t{4} * s.width});
  auto row_scale = k.input("row_scale", DType::f32, {rows}, {.align = 4});
  auto col_scale =
      k.input("col_scale", DType::f32, {s.columns}, {.align = int64_t{4} * s.col_width});
  auto out = k.output("out", DType::f32, {rows, s.columns});
  auto eps = k.scalar("eps", DType::f32), alpha = k.scalar("alpha", DType::f32);
  auto tiles_per_block = k.scalar("tiles_per_block", DType::i32);
  const auto tiles = ceil_div(rows, tile.rows);
  auto at =
      k.launch({(tiles + tiles_per_block - 1) / tiles_per_block},
               {.threads = tile.block_threads(), .min_blocks_per_sm = blocks_per_sm(s.columns)});
  k.let_next_kernel_start();
  const NormRow row(k, s.columns, tile);
  k.wait_for_previous_kernel();
  auto by_column = row.local(DType::f32, "by_column");
  row.clear(by_column);
  for (int64_t step = 0; step < tile.steps; ++step) {
    row.in_row(step, [&](const Value& column) {
      row.load(col_scale, column, by_column(step), s.col_width);
    });
  }
  k.serial(at.x * tiles_per_block, min((at.x + 1) * tiles_per_block, tiles), [&](Value tile_of) {
    auto i = k.let("i", tile_of * tile.rows + row.row());
    auto x = row.local(DType::f32, "x");
    row.clear(x);
    auto scale = k.var(DType::f32, 0.0f, "scale");
    k.if_(i < rows, [&] {
      for (int64_t step = 0; step < tile.steps; ++step) {
        row.in_row(step,
                   [&](const Value& column) { row.load(matrix(i), column, x(step), s.width); });
      }
      scale = row_scale(i);
    });
    for (int64_t step = 0; step < tile.steps; ++step) {
      k.unrolled(tile.run, [&](Value j) { x(step, j) = scale * x(step, j) * by_column(step, j); });
    }
    const Value squares = row.sum([&](int64_t step, const Value& j) {
      auto value = x(step, j).read();
      return std::pair(value, value);
    });
    auto factor = k.let("factor", alpha / (sqrt(squares) + eps));
    k.if_(i < rows, [&] {
      for (int64_t step = 0; step < tile.steps; ++step) {
        row.in_row(step, [&](const Value& column) {
          k.unrolled(tile.run, [&](Value j) { x(step, j) *= factor; });
          row.store(x(step), out(i), column, 4);
        });
      }
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.columns = c.i32("D");
  s.width = static_cast<int16_t>(common_vector(c.given("matrix"), 4));
  s.col_width = static_cast<int16_t>(common_vector(c.given("col_scale"), 4));
  const int64_t tiles = num_blocks(c["R"], row_tile(s.columns).rows);
  const int64_t per_block = std::clamp<int64_t>(tiles / kManyBlocks, 1, max_tiles(s.columns));
  go.add(build, s, {{}, {{"tiles_per_block", per_block}}});
}

}  // namespace

const Op engram_sinkhorn_finalize_op{
    .name = "engram_sinkhorn_finalize",
    .family = "engram",
    .purpose = "the scaled update of an embedding table, with rows of norm alpha",
    .signature = R"(
      matrix     f32 [R, D]
      row_scale  f32 [R]
      col_scale  f32 [D]
      -> out     f32 [R, D] align 16
      param  eps, alpha float
      need   D >= 1 on matrix "argument 'matrix' has no columns"
      need   D % 256 = 0 on matrix "a row has the wrong number of columns"
      limit  D <= 4096 on matrix "rows this long are not supported"
      limit  R <= 2130706431 on matrix "so many rows are not supported"
    )",
    .launches = launches,
    .examples =
        "R=90 D=512 eps=1e-8 alpha=0.2; R=9 D=2304 eps=1e-8 alpha=1; R=30 D=256 eps=0 alpha=1",
    .bench = R"(
      R=262144 D=512 eps=1e-8 alpha=0.2; R=32768 D=4096 eps=1e-8 alpha=0.2; R=1024 D=512 eps=1e-8 alpha=0.2)"};

}  // namespace tessera::kernels
