// The projection kernel.
//
// Shapes   residual [tokens, width] bf16, fn [entries, width] f32, norm_weight [width] f32,
//          products [parts, tokens, entries] f32, squares [parts, tokens] f32
// Method   a block multiplies 64 or 128 rows by all entries along one part of the columns, on tensor
//          cores. Residual vectors of 16 bytes go from global memory into the registers of the very
//          lane that feeds them to the instruction: the columns of a block of 32 are taken in the
//          order that makes it so, for both operands. fn passes through shared memory, rounded to
//          tf32 once per block. The next step's loads are in flight during this step's products.
//          The bound is reading the residual once.
// Maths    F' = tf32(fn * norm_weight), nearest, ties away; bf16 is exact in tf32. f32 sums of 256
//          columns, ascending in steps of 8. Squares: lane c of 4 sums the columns with h / 8 % 4 =
//          c in ascending order by fma, then (c0 + c2) + (c1 + c3).
// Tuned    H200: many rows per block read fn less often, few keep all SMs busy.

#include "kernels/mhc/projection.h"

#include <algorithm>

#include "kernels/jit/jit.h"
#include "kernels/mhc/row_tile.h"

namespace tessera::kernels::mhc {
namespace {

struct Spec {
  int32_t entries, width, part_columns;
  int32_t rows;        // of one block
  int32_t has_weight;  // 0 or 1
  int32_t align, fn_align, workspace_align;
};

constexpr int kThreads = 128;
constexpr int64_t kWarps = kThreads / 32;
constexpr int64_t kStep = 64;  // columns staged at once: 128 bytes of every row
constexpr int64_t kMaxGroupSums = 8;
int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

/// Lane 4 * (row % 8) + c of a warp holds columns 8 c .. 8 c + 7 of every 32: whole vectors, and the
/// rows of the instruction's left operand.
layout::Layout residual_layout(int64_t rows) {
  const int64_t tiles = rows / kWarps / 16, blocks = kStep / 32;
  return layout::Layout({rows, kStep}, {{0, 1, 8, 4, 0},
                                        {0, 8, 2, 0, 8 * blocks},
                                        {0, 16, tiles, 0, 16 * blocks},
                                        {0, 16 * tiles, kWarps, 32, 0},
                                        {1, 1, 8, 0, 1},
                                        {1, 8, 4, 1, 0},
                                        {1, 32, blocks, 0, 8}});
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t rows = s.rows, entries = round_up(s.entries, 8), blocks = kStep / 32;
  const int64_t parts = (s.width + s.part_columns - 1) / s.part_columns;
  Builder k("mhc_projection");
  auto tokens = k.dim("tokens");
  auto residual = k.input("residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto fn = k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  std::vector<Ref> weight;
  if (s.has_weight != 0)
    weight.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = 4}));
  auto products =
      k.output("products", DType::f32, {parts, tokens, s.entries}, {.align = s.workspace_align});
  auto squares = k.output("squares", DType::f32, {parts, tokens}, {.align = 4});
  auto at = k.launch({parts, ceil_div(tokens, rows)}, {.threads = kThreads});
  auto first_row = k.let("first_row", at.y * rows);
  auto first_col = k.let("first_col", at.x * s.part_columns);

  auto x = k.fragment(DType::bf16, residual_layout(rows), "x");           // (rows, columns)
  auto x_lanes = x.reshape({rows, blocks, 4, 8});                         // (rows, 32s, c, v)
  auto f = k.fragment(DType::f32, {entries, kStep}, "f");                 // (entries, order)
  auto left = k.fragment(DType::f32, {rows, kStep}, "left");              // (rows, order)
  auto left_lanes = left.reshape({rows, blocks, 8, 4});                   // (rows, 32s, v, c)
  auto right = k.shared(DType::f32, {entries, kStep}, "right");           // (entries, order)
  auto product = k.fragment(DType::f32, {rows, entries}, "product");      // of 256 columns
  auto square_lanes = k.fragment(DType::f32, {rows, 4}, "square_lanes");  // of 256 columns, by c
  auto square = k.fragment(DType::f32, {rows}, "square");
  auto part_product = k.fragment(DType::f32, {rows, entries}, "part_product");
  auto part_square = k.fragment(DType::f32, {rows}, "part_square");

  auto w = k.fragment(DType::f32, {entries, kStep}, "w");  // norm_weight, if any

  // Place p of 32 in the order of multiplication is column 8 c + v with p = 4 v + c.
  const auto load = [&](const Value& col) {
    k.copy(residual.tile({first_row, col}, {rows, kStep}), x);
    k.parallel({entries, kStep}, [&](Value j, Value p) {
      auto h = col + (p / 32 * 32 + p % 4 * 8 + p / 4 % 8);
      f(j, p) = fn(j, h);
      if (!weight.empty()) w(j, p) = weight[0](h);
    });
  };
  const auto stage = [&] {
    k.parallel({entries, kStep}, [&](Value j, Value p) {
      Value value = f(j, p);
      if (!weight.empty()) value = value * w(j, p);
      right(j, p) = round_tf32(value);
    });
    k.parallel({rows, blocks, 4, 8}, [&](Value row, Value block, Value c, Value v) {
      auto value = f32(x_lanes(row, block, c, v));
      left_lanes(row, block, v, c) = value;
      square_lanes(row, c) = dsl::fma(value, value, square_lanes(row, c));
    });
  };
  k.fill(part_product, 0.0f);
  k.fill(part_square, 0.0f);
  load(first_col);
  // The last part may be shorter.
  const int64_t most_sums = s.part_columns / kSumColumns, all_sums = s.width / kSumColumns;
  auto sums = all_sums % most_sums == 0
                  ? Arg(most_sums).value()
                  : k.let("sums", min(all_sums - at.x * most_sums, most_sums));
  constexpr int64_t kSteps = kSumColumns / kStep;
  k.serial(0, sums, [&](Value sum) {
    k.fill(product, 0.0f);
    k.fill(square_lanes, 0.0f);
    k.serial(0, kSteps, [&](Value step) {
      stage();
      // load the next step, multiply this one
      auto next = k.let("next", sum * kSteps + step + 1);
      k.if_(next < sums * kSteps, [&] { load(first_col + next * kStep); });
      k.gemm(left, right.transposed(), product,
             {.warp_rows = kWarps, .warp_columns = 1, .tf32 = ir::Tf32::truncate});
    });
    k.reduce_sum(square_lanes, square, Axis(1));
    k.parallel({rows, entries},
               [&](Value row, Value j) { part_product(row, j) += product(row, j); });
    k.parallel({rows}, [&](Value row) { part_square(row) += square(row); });
  });
  k.parallel({rows, entries}, [&](Value row, Value j) {
    products(at.x, first_row + row, j) = part_product(row, j);
  });
  k.copy(part_square, squares(at.x).tile({first_row}, {rows}));
  return k.finish();
}

Spec spec_of(const ProjectionShape& shape, const ProjectionTiling& tiling,
             const ProjectionTensors& tensors) {
  return {static_cast<int32_t>(shape.entries),
          static_cast<int32_t>(shape.width),
          static_cast<int32_t>(ProjectionParts(shape, tiling).part_columns),
          tiling.rows,
          tensors.norm_weight.rank() != 0 ? 1 : 0,
          common_alignment({tensors.residual}),
          common_alignment({tensors.fn}),
          common_alignment({tensors.workspace})};
}

}  // namespace

ProjectionTiling pick_tiling(const ProjectionShape& shape) {
  constexpr int64_t kManyTokens = 4096;   // then 128 rows still make 2 blocks for each of 132 SMs
  constexpr int64_t kEnoughBlocks = 512;  // 4 of 64 rows fit an SM
  const ProjectionTiling large{shape.tokens >= kManyTokens ? 128 : 64, true};
  const int64_t row_blocks = (shape.tokens + 63) / 64;
  if (row_blocks * ProjectionParts(shape, large).parts >= kEnoughBlocks) return large;
  return {large.rows, false};
}

ProjectionParts::ProjectionParts(const ProjectionShape& shape, const ProjectionTiling& tiling) {
  const int64_t sums = shape.width / kSumColumns;
  if (sums == 0) return;
  const int64_t sums_per_run = (sums + shape.num_splits - 1) / shape.num_splits;
  int64_t sums_per_group = kMaxGroupSums;
  while (sums_per_run % sums_per_group != 0) --sums_per_group;
  const int64_t sums_per_part = tiling.whole_groups ? sums_per_group : 1;
  part_columns = sums_per_part * kSumColumns;
  parts = (sums + sums_per_part - 1) / sums_per_part;
  parts_per_group = sums_per_group / sums_per_part;
  parts_per_run = sums_per_run / sums_per_part;
}

int64_t projection_workspace(const ProjectionShape& shape) {
  return ProjectionParts(shape).parts * shape.tokens * (shape.entries + 1);
}

TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const Dims dims = {ProjectionParts(shape).parts, shape.tokens, shape.entries};
  return TensorView(workspace.data, DType::f32, dims, workspace.device);
}

TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const int64_t parts = ProjectionParts(shape).parts;
  float* const first = static_cast<float*>(workspace.data);
  float* const data = first == nullptr ? first : first + parts * shape.tokens * shape.entries;
  return TensorView(data, DType::f32, {parts, shape.tokens}, workspace.device);
}

void run_projection(const char* op, const ProjectionShape& shape, const ProjectionTensors& tensors,
                    Stream stream) {
  if (shape.width == 0) return;
  const Spec spec = spec_of(shape, pick_tiling(shape), tensors);
  std::vector<TensorView> arguments = {
      TensorView(tensors.residual.data, DType::bf16, {shape.tokens, shape.width},
                 tensors.residual.device),
      tensors.fn};
  if (spec.has_weight != 0) arguments.push_back(tensors.norm_weight);
  arguments.push_back(product_parts(shape, tensors.workspace));
  arguments.push_back(square_parts(shape, tensors.workspace));
  jit::run(
      op, "projection" + jit::spec_bytes(spec), [&] { return build(spec); }, arguments, {}, stream);
}

ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTiling& tiling,
                             const ProjectionTensors& tensors) {
  return build(spec_of(shape, tiling, tensors));
}

dsl::Value sum_parts(dsl::Builder& k, const PartSum& sum,
                     const std::function<dsl::Value(const dsl::Value& part)>& part) {
  using namespace dsl;
  constexpr int64_t kMostUnrolled = 16;  // loads of one run that are in flight together, in groups
  const int64_t groups_per_run = sum.parts_per_run / sum.parts_per_group;
  const int64_t runs = (sum.parts + sum.parts_per_run - 1) / sum.parts_per_run;
  auto total = k.var(DType::f32, 0.0f, "total");
  k.unrolled(runs, [&](Value run) {
    auto run_total = k.var(DType::f32, 0.0f, "run_total");
    const auto add_group = [&](Value group) {
      auto group_total = k.var(DType::f32, 0.0f, "group_total");
      k.unrolled(sum.parts_per_group, [&](Value i) {
        auto p = k.let("part", run * sum.parts_per_run + group * sum.parts_per_group + i);
        if (sum.parts % sum.parts_per_run == 0) {
          group_total += part(p);
        } else {
          k.if_(p < sum.parts, [&] { group_total += part(p); });
        }
      });
      run_total += group_total;
    };
    if (groups_per_run <= kMostUnrolled) {
      k.unrolled(groups_per_run, add_group);
    } else {
      k.serial(0, groups_per_run, add_group);
    }
    total += run_total;
  });
  return total;
}

}  // namespace tessera::kernels::mhc
