// engram_sinkhorn_step: one step of the scaling of rows and columns: rows to norm 1, and the sums of
// squares of the columns of the scaled matrix.
//
// Shapes   matrix [rows, columns], row_scale, row_norm [rows], col_scale, col_sumsq [columns]
// Dtypes   f32
// Method   block z of at most 264 has a run of rows (partial_sum.h), which it walks in tiles of 8 KiB or
//          one row. Tiles are copied to shared memory kStages - 1 rounds ahead: 264 blocks alone have too few
//          loads in flight. The threads of a row sum it and leave the scaled row in shared memory; then
//          a thread per column adds the rows of the tile in ascending order to sums in registers, which
//          become partial z. A second kernel adds the partials. The bound is bytes / copy bandwidth.
// Maths    x = (row_scale matrix) col_scale; row_norm = sqrt(sum of x^2 in the order of norm_row.h); v = 1
//          / (row_norm + eps); row_scale = row_scale v; col_sumsq = sums of (x v)^2 by fma
// Measured one H200, 262144 x 512: 149 us, 86 % of copy, 32768 x 4096 144, 89 %.
// Lost     64 threads for 512 columns, runs of eight 186 and 156, eight stages 194; a warp per row, runs of eight 155, three
//          stages 156; 128 threads, runs of four 229, eight stages 264; three or five stages of 4096 143 and 145.

#include <algorithm>
#include <utility>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/serving/norm/parts/partial_sum.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using serving::NormRow;
using serving::RowTile;

struct Spec {
  int32_t columns;
  int32_t width;  // columns per access to col_scale
  int32_t align;  // bytes, of matrix
};

constexpr int kStages = 4;  // of tiles

/// Short rows are a warp's: no barrier. Runs of four columns, whose accesses are adjacent.
RowTile row_tile(int64_t columns) {
  const int64_t threads = columns > 512 ? 256 : 32;
  return serving::pick_row_tile(columns, {.shares_blocks = true, .max_threads = threads, .run = 4});
}

ir::Kernel build_rows(const Spec& s) {
  using namespace dsl;
  const RowTile tile = row_tile(s.columns);
  const int64_t threads = tile.block_threads(), per_thread = s.columns / threads;
  Builder k("engram_sinkhorn_step_rows");
  auto rows = k.dim("rows");
  auto matrix = k.input("matrix", DType::f32, {rows, s.columns}, {.align = s.align});
  auto col_scale = k.input("col_scale", DType::f32, {s.columns}, {.align = int64_t{4} * s.width});
  auto row_scale = k.output("row_scale", DType::f32, {rows}, {.align = 4});
  auto row_norm = k.output("row_norm", DType::f32, {rows}, {.align = 4});
  auto partials = k.output("partials", DType::f32, {k.dim("num_partials"), s.columns});
  auto eps = k.scalar("eps", DType::f32), rows_per_block = k.scalar("rows_per_block", DType::i32);
  auto at = k.launch({(rows + rows_per_block - 1) / rows_per_block},
                     {.threads = static_cast<int>(threads)});
  k.let_next_kernel_start();
  const NormRow row(k, s.columns, tile);
  k.wait_for_previous_kernel();
  auto first = k.let("first", at.x * rows_per_block);
  auto last = k.let("last", min(first + rows_per_block, rows));
  k.assume(first >= 0 && first < rows);
  auto by_column = row.local(DType::f32, "by_column");
  row.clear(by_column);
  for (int64_t step = 0; step < tile.steps; ++step) {
    row.in_row(step,
               [&](const Value& column) { row.load(col_scale, column, by_column(step), s.width); });
  }
  auto sums = k.local(DType::f32, {per_thread}, "sums");
  k.unrolled(per_thread, [&](Value j) { sums(j) = 0.0f; });
  auto staged = k.shared(DType::f32, {tile.rows, s.columns}, "staged");
  auto normed = k.shared(DType::f32, {tile.rows, s.columns}, "normed");
  // Loaded a round ahead, as a load for this round would stop it.
  auto next_scale = k.var(DType::f32, 0.0f, "next_scale");
  const auto load_scale = [&](const Value& i) {
    k.if_(i < last, [&] { next_scale = row_scale(i).unchecked(); });
  };
  load_scale(first + row.row());
  k.pipelined(0, ceil_div(last - first, tile.rows), kStages, [&](Value round) {
    auto begin = k.let("begin", first + round * tile.rows);
    k.copy(matrix.tile({begin, 0}, {tile.rows, s.columns}), staged);
    auto i = k.let("i", begin + row.row());
    auto scale = k.let("scale", next_scale);
    load_scale(i + tile.rows);
    auto x = row.local(DType::f32, "x");
    row.clear(x);
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step,
                 [&](const Value& column) { row.load(staged(row.row()), column, x(step), 4); });
      k.unrolled(tile.run, [&](Value j) { x(step, j) = scale * x(step, j) * by_column(step, j); });
    }
    const Value squares = row.sum([&](int64_t step, const Value& j) {
      auto value = x(step, j).read();
      return std::pair(value, value);
    });
    auto norm = k.let("norm", sqrt(squares));
    auto v = k.let("v", 1.0f / (norm + eps));
    k.if_(i < last && row.thread() == 0, [&] {
      row_norm(i) = norm;
      row_scale(i) = scale * v;
    });
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step, [&](const Value& column) {
        k.unrolled(tile.run, [&](Value j) { x(step, j) *= v; });
        row.store(x(step), normed(row.row()), column, 4);
      });
    }
    k.unrolled(tile.rows, [&](Value r) {
      k.if_(begin + r < last, [&] {
        k.unrolled(per_thread, [&](Value j) {
          auto value = k.let("value", normed(r, k.thread() + j * threads));
          sums(j) = fma(value, value, sums(j));
        });
      });
    });
  });
  k.unrolled(per_thread, [&](Value j) { partials(at.x, k.thread() + j * threads) = sums(j); });
  return k.finish();
}

ir::Kernel build_sum(const serving::PartialSumSpec& s) {
  return serving::build_partial_sum("engram_sinkhorn_step_sum", "col_sumsq", s);
}

/// At least one, so that the workspace is never empty.
int64_t partials_of(const Call& c) {
  return std::max<int64_t>(serving::num_partials(c["R"]), 1);
}

void launches(const Call& c, Launches& go) {
  const bool has_rows = c["R"] > 0;
  const TensorView& workspace = c.given("workspace");
  Args args{{}, {{"rows_per_block", serving::rows_per_partial(c["R"])}}};
  args.tensors.push_back({"partials",
                          {workspace.data, DType::f32, Dims{partials_of(c), c["D"]},
                           Dims{c["D"], 1}, workspace.device}});
  if (has_rows) {
    Spec s{};
    s.columns = c.i32("D");
    s.width = static_cast<int32_t>(common_vector(c.given("col_scale"), 4));
    s.align = c.align({"matrix"});
    go.add(build_rows, s, args, "rows");
  }
  go.add(build_sum, serving::PartialSumSpec{DType::f32, false, has_rows, 0, c.i32("D")}, args,
         "sum");
}

}  // namespace

const Op engram_sinkhorn_step_op{
    .name = "engram_sinkhorn_step",
    .family = "engram",
    .purpose =
        "scales the rows of an embedding table's update to norm 1 and sums its columns' squares",
    .signature = R"(
      matrix              f32 [R, D]
      col_scale           f32 [D]
      -> inout row_scale  f32 [R]
      -> row_norm         f32 [R]          # before the step
      -> col_sumsq        f32 [D]          # after it
      workspace           f32 [elements()]
      param  eps float
      need   D >= 1 on matrix "argument 'matrix' has no columns"
      need   D % 256 = 0 on matrix "a row has the wrong number of columns"
      limit  D <= 4096 on matrix "rows this long are not supported"
      limit  R <= 2130706431 on matrix "so many rows are not supported"
    )",
    .launches = launches,
    .functions = {{"elements", [](const Call& c) { return partials_of(c) * c["D"]; }}},
    .examples = "R=900 D=512 eps=1e-8; R=9 D=2304 eps=1e-8; R=300 D=256 eps=0",
    .bench = "R=262144 D=512 eps=1e-8; R=32768 D=4096 eps=1e-8; R=1024 D=512 eps=1e-8"};

}  // namespace tessera::kernels
