// The projection kernel.
//
// Shapes   residual [tokens, width] bf16, fn [entries, width] f32, norm_weight [width] f32,
//          products [parts, tokens * entries] f32, squares [tokens, parts] f32
// Method   a block of 4 warps takes one part of the columns and every so many tiles of 16 rows. Every
//          warp keeps fn of its quarter of the columns, rounded once, in registers, and multiplies one
//          tile after the other on the tensor cores; the tiles come through shared memory, copied
//          ahead. The warps' sums are added through shared memory. The columns of a block of 32 are
//          taken in an order that gives every lane whole vectors of the residual and of fn. The bound
//          is reading the residual once.
// Maths    F' = tf32(fn * norm_weight), nearest, ties away; bf16 is exact in tf32. f32 sums of a
//          quarter of a part, ascending in steps of 8. Squares: lane c of 4 sums the columns with
//          h / 8 % 4 = c in ascending order by fma, then (c0 + c2) + (c1 + c3).
// Tuned    H200: two blocks per SM with up to 255 registers, all of them resident at once.

#include "kernels/mhc/projection.h"

#include <algorithm>

#include "dsl/builder.h"
#include "kernels/alignment.h"
#include "kernels/jit/jit.h"

namespace tessera::kernels::mhc {
namespace {

struct Spec {
  int32_t entries, width, part_columns;
  int32_t has_weight;  // 0 or 1
  int32_t align, fn_align, workspace_align;
};

constexpr int64_t kWarps = 4;
constexpr int64_t kRows = 16;           // of a tile
constexpr int64_t kTogether = 32;       // columns of a warp that are multiplied together
constexpr int64_t kPartUnit = 128;      // columns, kTogether for each warp
constexpr int64_t kMostColumns = 1024;  // of a part
constexpr int64_t kMostKept = 192;      // elements of fn that one lane keeps
constexpr int64_t kBlocks = 264;        // two for each of 132 SMs

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t entries = round_up(s.entries, 8), columns = s.part_columns;
  const int64_t warp_columns = columns / kWarps;
  const int64_t parts = (s.width + columns - 1) / columns;
  Builder k("mhc_projection");
  auto tokens = k.dim("tokens");
  auto residual = k.input("residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto fn = k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  std::vector<Ref> weight;
  if (s.has_weight != 0)
    weight.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = 4}));
  auto products =
      k.output("products", DType::f32, {parts, tokens * s.entries}, {.align = s.workspace_align});
  auto squares = k.output("squares", DType::f32, {tokens, parts}, {.align = 4});
  auto row_blocks = k.scalar("row_blocks", DType::i32);
  auto at = k.launch({parts, row_blocks}, {.threads = 32 * kWarps, .min_blocks_per_sm = 2});
  k.let_next_kernel_start();
  auto first_col = k.let("first_col", at.x * columns);

  // Row blocks take turns, so that the last rows are read last and may still be in L2 for who reads the
  // residual again backwards.
  auto all_tiles = ceil_div(tokens, kRows);
  auto tiles = k.let("tiles", (all_tiles - at.y + row_blocks - 1) / row_blocks);

  // Place p of 32 in the order of multiplication is column 8 c + v with p = 4 v + c.
  const auto column = [&](const Value& w, int64_t first, const Value& c, const Value& v) {
    return w * warp_columns + first + c * 8 + v;
  };
  std::vector<Ref> right;  // of every 32 columns of a warp (order, entries)
  for (int64_t first = 0; first < warp_columns; first += kTogether) {
    right.push_back(k.fragment(DType::f32, {kWarps * kTogether, entries}, "right"));
    auto right_lanes = right.back().reshape({kWarps, 8, 4, entries});
    k.parallel({kWarps, 4, entries, 8}, [&](Value w, Value c, Value j, Value v) {
      auto h = first_col + column(w, first, c, v);
      Value value = fn(j, h);
      if (!weight.empty()) value = value * weight[0](h);
      right_lanes(w, v, c, j) = round_tf32(value);
    });
  }

  // Neighbouring rows half of the banks apart: what 8 lanes read of two rows falls on different ones.
  auto ring = k.shared(DType::bf16, {kRows, columns + 32}, "x");
  auto x = ring.tile({0, 0}, {kRows, columns});
  auto product = k.fragment(DType::f32, {kWarps, kRows, entries}, "product");
  auto square_lanes = k.fragment(DType::f32, {kRows, kWarps, 4}, "square_lanes");  // by c
  auto square = k.fragment(DType::f32, {kRows, kWarps}, "square");
  auto warp_products = k.shared(DType::f32, {kWarps, kRows, entries}, "warp_products");
  auto warp_squares = k.shared(DType::f32, {kRows, kWarps}, "warp_squares");
  k.pipelined(0, tiles, 1, [&](Value tile) {
    auto row = k.let("row", (at.y + tile * row_blocks) * kRows);
    k.copy(residual.tile({row, first_col}, {kRows, columns}), x);
    k.fill(product, 0.0f);
    k.fill(square_lanes, 0.0f);
    for (size_t i = 0; i < right.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * kTogether;
      auto left = k.fragment(DType::f32, {kRows, kWarps * kTogether}, "left");  // (rows, order)
      auto left_lanes = left.reshape({kRows, kWarps, 8, 4});
      k.parallel({kRows, kWarps, 4, 8}, [&](Value r, Value w, Value c, Value v) {
        auto value = f32(x(r, column(w, first, c, v)));
        left_lanes(r, w, v, c) = value;
        square_lanes(r, w, c) = dsl::fma(value, value, square_lanes(r, w, c));
      });
      k.gemm(
          left, right[i], product,
          {.warp_rows = 1, .warp_columns = 1, .warp_depths = kWarps, .tf32 = ir::Tf32::truncate});
    }
    k.reduce_sum(square_lanes, square, Axis(2));
    k.copy(product, warp_products);
    k.copy(square, warp_squares);
    k.parallel({kRows, s.entries}, [&](Value r, Value j) {
      Value total = warp_products(0, r, j);
      for (int w = 1; w < kWarps; ++w) total = total + warp_products(w, r, j);
      products.cached(CacheHint::evict_last)(at.x, (row + r) * s.entries + j) = total;
    });
    k.parallel({kRows}, [&](Value r) {
      Value total = warp_squares(r, 0);
      for (int w = 1; w < kWarps; ++w) total = total + warp_squares(r, w);
      squares(row + r, at.x) = total;
    });
  });
  return k.finish();
}

Spec spec_of(const ProjectionShape& shape, const ProjectionTensors& tensors) {
  return {static_cast<int32_t>(shape.entries),
          static_cast<int32_t>(shape.width),
          static_cast<int32_t>(ProjectionParts(shape).part_columns),
          tensors.norm_weight.rank() != 0 ? 1 : 0,
          common_alignment({tensors.residual}),
          common_alignment({tensors.fn}),
          common_alignment({tensors.workspace})};
}

/// Runs of rows: so few that all blocks are resident at once, and a block has two tiles.
int64_t row_blocks(const ProjectionShape& shape) {
  const int64_t tiles = (shape.tokens + kRows - 1) / kRows;
  const int64_t most = kBlocks / ProjectionParts(shape).parts;
  return std::max<int64_t>(1, std::min(most, (tiles + 1) / 2));
}

}  // namespace

ProjectionParts::ProjectionParts(const ProjectionShape& shape) {
  if (shape.width == 0) return;
  const int64_t run = (shape.width / kRunUnit + shape.num_splits - 1) / shape.num_splits * kRunUnit;
  // Of a unit a lane keeps one element of every entry.
  int64_t units = std::min(kMostKept / round_up(shape.entries, 8), kMostColumns / kPartUnit);
  while (run % (units * kPartUnit) != 0) --units;
  part_columns = units * kPartUnit;
  parts = (shape.width + part_columns - 1) / part_columns;
  parts_per_run = run / part_columns;
}

int64_t projection_workspace(const ProjectionShape& shape) {
  return ProjectionParts(shape).parts * shape.tokens * (shape.entries + 1);
}

TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const Dims dims = {ProjectionParts(shape).parts, shape.tokens * shape.entries};
  return TensorView(workspace.data, DType::f32, dims, workspace.device);
}

TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const int64_t parts = ProjectionParts(shape).parts;
  float* const first = static_cast<float*>(workspace.data);
  float* const data = first == nullptr ? first : first + parts * shape.tokens * shape.entries;
  return TensorView(data, DType::f32, {shape.tokens, parts}, workspace.device);
}

void run_projection(const char* op, const ProjectionShape& shape, const ProjectionTensors& tensors,
                    Stream stream) {
  if (shape.width == 0) return;
  const Spec spec = spec_of(shape, tensors);
  std::vector<TensorView> arguments = {
      TensorView(tensors.residual.data, DType::bf16, {shape.tokens, shape.width},
                 tensors.residual.device),
      tensors.fn};
  if (spec.has_weight != 0) arguments.push_back(tensors.norm_weight);
  arguments.push_back(product_parts(shape, tensors.workspace));
  arguments.push_back(square_parts(shape, tensors.workspace));
  const int64_t scalars[] = {row_blocks(shape)};
  jit::run(
      op, "projection" + jit::spec_bytes(spec), [&] { return build(spec); }, arguments, scalars,
      stream);
}

ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTensors& tensors) {
  return build(spec_of(shape, tensors));
}

}  // namespace tessera::kernels::mhc
