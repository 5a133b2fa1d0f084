// The projection kernel.
//
// Shapes   residual [tokens, width] bf16, fn [entries, width] f32, norm_weight [width] f32,
//          products [parts, tokens, entries] f32, squares [parts, tokens] f32
// Method   a block multiplies 64 or 128 rows by all entries along one part of the columns, on tensor
//          cores. Residual and fn go through shared memory, copied some steps ahead; fn is rounded to
//          tf32 there once per block. The columns of a block of 32 are taken in an order that gives
//          every lane whole vectors of the residual. The bound is reading the residual once.
// Maths    F' = tf32(fn * norm_weight), nearest, ties away; bf16 is exact in tf32. f32 sums of 256
//          columns, ascending in steps of 8. Squares: lane c of 4 sums the columns with h / 8 % 4 =
//          c in ascending order by fma, then (c0 + c2) + (c1 + c3).
// Tuned    H200: many rows per block read fn less often, few keep all SMs busy. Steps of 32 or 128
//          columns are slower (barriers; registers), more steps ahead too (blocks per SM).

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

constexpr int64_t kStep = 64;  // columns staged at once: 128 bytes of every row
constexpr int kThreads = 128;
constexpr int64_t kWarps = kThreads / 32;
constexpr int64_t kMaxGroupSums = 8;
int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
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
  auto at = k.launch({parts, ceil_div(tokens, rows)},
                     {.threads = kThreads, .min_blocks_per_sm = rows > 64 ? 2 : 4});
  auto first_row = k.let("first_row", at.y * rows);
  auto first_col = k.let("first_col", at.x * s.part_columns);

  auto x = k.shared(DType::bf16, {rows, kStep}, "x");                     // (rows, columns)
  auto f = k.shared(DType::f32, {s.entries, kStep}, "f");                 // (entries, columns)
  auto left = k.fragment(DType::f32, {rows, kStep}, "left");              // (rows, order)
  auto left_lanes = left.reshape({rows, blocks, 8, 4});                   // (rows, 32s, v, c)
  auto right = k.shared(DType::f32, {entries, kStep}, "right");           // (entries, order)
  auto product = k.fragment(DType::f32, {rows, entries}, "product");      // of 256 columns
  auto square_lanes = k.fragment(DType::f32, {rows, 4}, "square_lanes");  // of 256 columns, by c
  auto square = k.fragment(DType::f32, {rows}, "square");
  auto part_product = k.fragment(DType::f32, {rows, entries}, "part_product");
  auto part_square = k.fragment(DType::f32, {rows}, "part_square");
  std::vector<Ref> w;  // (columns)
  if (!weight.empty()) w.push_back(k.shared(DType::f32, {kStep}, "w"));

  // Place p of 32 in the order of multiplication is column 8 c + v with p = 4 v + c.
  const auto stage = [&] {
    k.parallel({s.entries, kStep}, [&](Value j, Value p) {
      auto h = p / 32 * 32 + p % 4 * 8 + p / 4 % 8;
      Value value = f(j, h);
      if (!w.empty()) value = value * w[0](h);
      right(j, p) = round_tf32(value);
    });
    k.parallel({rows, blocks, 4, 8}, [&](Value row, Value block, Value c, Value v) {
      auto value = f32(x(row, block * 32 + c * 8 + v));
      left_lanes(row, block, v, c) = value;
      square_lanes(row, c) = dsl::fma(value, value, square_lanes(row, c));
    });
  };
  if (entries > s.entries) k.fill(right, 0.0f);  // rows that make the instruction's eight
  k.fill(part_product, 0.0f);
  k.fill(part_square, 0.0f);
  k.fill(product, 0.0f);
  k.fill(square_lanes, 0.0f);
  // The last part may be shorter.
  const int64_t most_sums = s.part_columns / kSumColumns, all_sums = s.width / kSumColumns;
  auto sums = all_sums % most_sums == 0
                  ? Arg(most_sums).value()
                  : k.let("sums", min(all_sums - at.x * most_sums, most_sums));
  constexpr int64_t kSteps = kSumColumns / kStep;
  k.pipelined(0, sums * kSteps, rows > 64 ? 3 : 2, [&](Value step) {
    auto col = first_col + step * kStep;
    k.copy(residual.tile({first_row, col}, {rows, kStep}), x);
    k.copy(fn.tile({0, col}, {s.entries, kStep}), f);
    if (!weight.empty()) k.copy(weight[0].tile({col}, {kStep}), w[0]);
    stage();
    k.gemm(left, right.transposed(), product,
           {.warp_rows = kWarps, .warp_columns = 1, .tf32 = ir::Tf32::truncate});
    k.if_(step % kSteps == kSteps - 1, [&] {
      k.reduce_sum(square_lanes, square, Axis(1));
      k.parallel({rows, entries}, [&](Value row, Value j) {
        part_product(row, j) += product(row, j);
        product(row, j) = 0.0f;
      });
      k.parallel({rows}, [&](Value row) { part_square(row) += square(row); });
      k.fill(square_lanes, 0.0f);
    });
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
  constexpr int64_t kEnoughBlocks = 250;  // about 2 for each of 132 SMs
  for (const int rows : {128, 64}) {
    const ProjectionTiling tiling{rows, true};
    const int64_t row_blocks = (shape.tokens + rows - 1) / rows;
    if (row_blocks * ProjectionParts(shape, tiling).parts >= kEnoughBlocks) return tiling;
  }
  return {64, false};
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

PartSum::PartSum(const ProjectionShape& shape) : entries(static_cast<int32_t>(shape.entries)) {
  const ProjectionParts p(shape);
  parts = static_cast<int32_t>(p.parts);
  parts_per_group = static_cast<int32_t>(p.parts_per_group);
  parts_per_run = static_cast<int32_t>(p.parts_per_run);
}

SumBlock::SumBlock(const PartSum& sum, int64_t row_lanes)
    : threads(sum.parts_per_group > 1 ? 384 : 128), rows(threads / row_lanes) {
  if (sum.parts_per_group > 1) rows = 32 / row_lanes;
}

SummedParts::SummedParts(dsl::Builder& k, const PartSum& sum, const dsl::Ref& products,
                         const dsl::Ref& squares, const dsl::Value& first_token, int64_t rows)
    : k_(k),
      groups_per_run_(sum.parts_per_run / sum.parts_per_group),
      runs_((sum.parts + sum.parts_per_run - 1) / sum.parts_per_run),
      products_(k.shared(DType::f32, {runs_ * groups_per_run_, rows, sum.entries}, "products_sum")),
      squares_(k.shared(DType::f32, {runs_ * groups_per_run_, rows}, "squares_sum")) {
  using namespace dsl;
  const int64_t groups = runs_ * groups_per_run_, entries = sum.entries;
  const auto add_group = [&](const Value& group, const auto& part) {
    Value total = Arg(0.0f).value();
    for (int64_t i = 0; i < sum.parts_per_group; ++i) {
      total = total + part(group * sum.parts_per_group + i);
    }
    return total;
  };
  k.parallel({groups * rows * entries}, [&](Value item) {
    auto group = item / (rows * entries), row = item / entries % rows, j = item % entries;
    products_(group, row, j) =
        add_group(group, [&](const Value& p) { return products(p, first_token + row, j); });
  });
  k.parallel({groups * rows}, [&](Value item) {
    auto group = item / rows, row = item % rows;
    squares_(group, row) =
        add_group(group, [&](const Value& p) { return squares(p, first_token + row); });
  });
}

dsl::Value SummedParts::add_runs(
    const std::function<dsl::Value(const dsl::Value& group)>& of_group) const {
  using namespace dsl;
  auto total = k_.var(DType::f32, 0.0f, "total");
  k_.unrolled(runs_, [&](Value run) {
    auto run_total = k_.var(DType::f32, 0.0f, "run_total");
    k_.unrolled(groups_per_run_,
                [&](Value group) { run_total += of_group(run * groups_per_run_ + group); });
    total += run_total;
  });
  return total;
}

dsl::Value SummedParts::product(const dsl::Value& row, const dsl::Value& entry) const {
  return add_runs([&](const dsl::Value& group) { return products_(group, row, entry); });
}

dsl::Value SummedParts::square(const dsl::Value& row) const {
  return add_runs([&](const dsl::Value& group) { return squares_(group, row); });
}

}  // namespace tessera::kernels::mhc
