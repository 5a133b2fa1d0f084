// The projection kernel.
//
// Shapes   residual [tokens, width] bf16, fn [entries, width] f32, norm_weight [width] f32,
//          products [stored, tokens * entries] f32, squares [tokens, stored] f32
// Method   a block of 8 warps takes one part of the columns (with few tokens a block of 4 warps takes
//          half a part), and every n-th tile of 16 rows, or of 32 where rows are short. Every warp
//          keeps fn of its columns, rounded once, in registers, and multiplies tile after tile on the
//          tensor cores. The tiles are copied ahead through shared memory, by bulk copies if no later
//          kernel reads the residual. The sums of the warps are added through shared memory; with many
//          tiles this is delayed to the last products of the next tile. Blocks of 32 columns are
//          multiplied in a permuted order that gives every lane whole vectors of the residual and of
//          fn. The bound is reading the residual once.
// Maths    F' = tf32(fn * norm_weight), nearest, ties away; bf16 is exact in tf32. f32 sums of the
//          columns of a warp, ascending in steps of 8. Squares: lane c of 4 sums the columns with
//          h / 8 % 4 = c in ascending order by fma, then (c0 + c2) + (c1 + c3).
// Tuned    H200: 8 warps per SM with up to 255 registers, all blocks resident at once; 64 KB of copies
//          in flight (128 KB take 7 % longer), or bulk copies of two such tiles. Adding late saves 1
//          to 2 % at 28 tiles per block and more and costs 2 % at 16 and fewer; tiles of 32 rows gain
//          nothing.

#include "kernels/mhc/parts/projection_kernel.h"

#include <functional>
#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kTogether = 32;  // columns of a warp that one round multiplies

}  // namespace

ir::Kernel build_projection(const ProjectionSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  const int64_t columns = s.columns(), rows = s.rows();
  const int warps = static_cast<int>(s.warps());
  const int64_t warp_columns = columns / warps;
  const int64_t stored = (s.width + s.part_columns - 1) / s.part_columns * s.halves;
  Builder k("mhc_projection");
  auto tokens = k.dim("tokens");
  auto residual = k.input("residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto fn = k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  std::vector<Ref> weight;
  if (s.has_weight != 0)
    weight.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = 4}));
  auto products =
      k.output("products", DType::f32, {stored, tokens * s.entries}, {.align = s.workspace_align});
  auto squares = k.output("squares", DType::f32, {tokens, stored}, {.align = 4});
  auto row_blocks = k.scalar("row_blocks", DType::i32);
  auto at = k.launch({stored, row_blocks}, {.threads = 32 * warps, .min_blocks_per_sm = s.halves});
  k.let_next_kernel_start();
  auto first_col = k.let("first_col", at.x * columns);

  // Row blocks interleave, so that the last rows are read last and may still be in L2 for a kernel that
  // reads the residual backwards.
  auto all_tiles = ceil_div(tokens, rows);
  auto tiles = k.let("tiles", (all_tiles - at.y + row_blocks - 1) / row_blocks);

  // Place p of 32 in multiplication order is column 8 c + v with p = 4 v + c.
  const auto column = [&](const Value& w, int64_t first, const Value& c, const Value& v) {
    return w * warp_columns + first + c * 8 + v;
  };
  std::vector<Ref> right;  // fn of every 32 columns of a warp (order, entries)
  for (int64_t first = 0; first < warp_columns; first += kTogether) {
    right.push_back(k.fragment(DType::f32, {warps * kTogether, entries}, "right"));
    auto right_lanes = right.back().reshape({warps, 8, 4, entries});
    k.parallel({warps, 4, entries, 8}, [&](Value w, Value c, Value j, Value v) {
      auto h = first_col + column(w, first, c, v);
      Value value = fn(j, h);
      if (!weight.empty()) value = value * weight[0](h);
      right_lanes(w, v, c, j) = round_tf32(value);
    });
  }

  auto ring = k.shared(DType::bf16, {rows, s.row_columns()}, "x");
  auto x = ring.tile({0, 0}, {rows, columns});
  auto product = k.fragment(DType::f32, {warps, rows, entries}, "product");
  auto square_lanes = k.fragment(DType::f32, {rows, warps, 4}, "square_lanes");  // by c
  auto square = k.fragment(DType::f32, {rows, warps}, "square");
  auto warp_products = k.shared(DType::f32, {warps, rows, entries}, "warp_products");
  auto warp_squares = k.shared(DType::f32, {rows, warps}, "warp_squares");
  const auto row_of = [&](const Value& tile) { return (at.y + tile * row_blocks) * rows; };
  const auto add_up = [&](const Value& row) {
    // Adds groups of four warps, then the two halves if both are in this block.
    const auto add_warps = [&](const std::function<Value(int)>& of_warp) {
      std::optional<Value> total;
      for (int first = 0; first < warps; first += 4) {
        auto half = of_warp(first);
        for (int w = first + 1; w < first + 4; ++w) half = half + of_warp(w);
        total = total ? *total + half : half;
      }
      return *total;
    };
    k.parallel({rows, s.entries}, [&](Value r, Value j) {
      products.cached(CacheHint::evict_last)(at.x, (row + r) * s.entries + j) =
          add_warps([&](int w) -> Value { return warp_products(w, r, j); });
    });
    k.parallel({rows}, [&](Value r) {
      squares(row + r, at.x) = add_warps([&](int w) -> Value { return warp_squares(r, w); });
    });
  };

  const auto hint = s.is_last_reader != 0 ? CacheHint::evict_first : CacheHint::none;
  k.pipelined(0, tiles, s.copies_ahead(), [&](Value tile) {
    auto row = k.let("row", row_of(tile));
    const auto from = residual.tile({row, first_col}, {rows, columns}).cached(hint);
    k.copy(s.by_row() ? from.bulk() : from, x);
    k.fill(product, 0.0f);
    k.fill(square_lanes, 0.0f);
    for (size_t i = 0; i < right.size(); ++i) {
      // Before the barrier that lets the tile's stage be refilled: this barrier also separates the
      // sums.
      if (s.adds_late != 0 && i + 1 == right.size())
        k.if_(tile > 0, [&] { add_up(k.let("row_before", row_of(tile - 1))); });
      const int64_t first = static_cast<int64_t>(i) * kTogether;
      auto left = k.fragment(DType::f32, {rows, warps * kTogether}, "left");  // (rows, order)
      auto left_lanes = left.reshape({rows, warps, 8, 4});
      k.parallel({rows, warps, 4, 8}, [&](Value r, Value w, Value c, Value v) {
        auto value = f32(x(r, column(w, first, c, v)));
        left_lanes(r, w, v, c) = value;
        square_lanes(r, w, c) = dsl::fma(value, value, square_lanes(r, w, c));
      });
      k.gemm(left, right[i], product,
             {.warp_rows = 1, .warp_columns = 1, .warp_depths = warps, .tf32 = ir::Tf32::truncate});
    }
    k.reduce_sum(square_lanes, square, Axis(2));
    k.copy(product, warp_products);
    k.copy(square, warp_squares);
    if (s.adds_late == 0) add_up(row);
  });
  if (s.adds_late != 0) add_up(k.let("last_row", row_of(tiles - 1)));
  return k.finish();
}

}  // namespace tessera::kernels::mhc
