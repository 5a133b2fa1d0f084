// The kernel of norm_fn_bwd with both matrix products. norm_bwd_rows.cpp runs before it,
// norm_bwd_sum.cpp after it.
//
// Shapes   norm_bwd_workspace.h
// Method   a block takes 256 columns and a run of tokens. Its four warps each keep tf32(fn *
//          norm_weight) of 64 columns in registers, and the sums for grad_fn. Per tile of 16 tokens,
//          a warp multiplies the transposed residual by the gradients of the products in bf16, and
//          these gradients by fn in tf32. The residual is copied to shared memory four tiles ahead;
//          grad_residual is loaded to registers one tile ahead. The columns are multiplied in a
//          permuted order, so that an accumulator lane owns whole vectors of the residual. Each byte
//          of the residual and of its gradient moves once, so the bound is bytes / copy bandwidth.
// Maths    grad_residual = bf16(fma(2 x, dq, g + da F')), g the old value, one f32 chain in steps of 8
//          entries. dF' = x da per run of tokens, ascending in steps of 16. A residual that is not
//          finite has r = 0, and 0 times infinity makes its columns of dF' NaN.
// Tuned    H100: 4096 tokens of 4 x 7168 take 293 us, 81 % of copy where the gradients are given.

#include "kernels/mhc/parts/norm_bwd_kernel.h"

#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/parts/norm_bwd_workspace.h"
#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kWarps = 4;
constexpr int kStages = 5;  // four tiles ahead
// Padding of a row in shared memory: eight rows start in different banks.
constexpr int64_t kPaddingBytes = 16;

}  // namespace

ir::Kernel build_norm_bwd_products(const NormBwdSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  constexpr int64_t kRows = kBwdRows, kColumns = kBwdColumns, kWarpColumns = kColumns / kWarps;
  Builder k("norm_fn_bwd_products");
  auto tokens = k.dim("tokens"), runs = k.dim("runs");
  auto residual = k.input("residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto fn = k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  std::vector<Ref> weight;
  if (s.has_weight != 0)
    weight.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = s.fn_align}));
  const int64_t align = s.workspace_align;
  auto row_grads =
      k.input("row_grads", DType::f32, {tokens, entries + kBwdVector}, {.align = align});
  auto halves = k.input("halves", DType::bf16, {tokens, 2 * entries}, {.align = align});
  auto grad_residual =
      k.output("grad_residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto partials = k.output("partials", DType::f32, {runs, s.width, entries}, {.align = align});
  auto tiles_per_run = k.scalar("tiles_per_run", DType::i32);
  auto at = k.launch({s.width / kColumns, runs}, {.threads = 32 * kWarps, .min_blocks_per_sm = 2});
  auto first_col = k.let("first_col", at.x * kColumns);
  auto first_tile = k.let("first_tile", at.y * tiles_per_run);
  auto tiles = k.let("tiles", min(tiles_per_run, ceil_div(tokens, kRows) - first_tile));

  // Maps place 8 v + p of a warp's 64 in multiplication order to its column: two neighbours p are in
  // one lane, and four lanes own 64 bytes of a row.
  const auto column = [&](const Value& w, const Value& p, const Value& v) {
    return first_col + w * kWarpColumns + p % 2 * 32 + p / 2 * 8 + v;
  };
  auto right = k.fragment(DType::f32, {entries, kColumns}, "right");  // (entries, order)
  auto right_lanes = right.reshape({entries, kWarps, 8, 8});
  k.parallel({entries, kWarps, 8, 8}, [&](Value j, Value w, Value p, Value v) {
    auto h = column(w, p, v);
    Value value = fn(j, h);
    if (!weight.empty()) value = value * weight[0](h);
    right_lanes(j, w, v, p) = round_tf32(value);
  });
  // Inputs older than the gradients of the rows have been read by now.
  k.wait_for_previous_kernel();

  auto x_rows = k.shared(DType::bf16, {kRows, kColumns + kPaddingBytes / 2}, "x");
  // Rows padded as in the workspace.
  auto grads = k.shared(DType::f32, {kRows, entries + kBwdVector}, "grads");
  auto halves_rows = k.shared(DType::bf16, {kRows, 2 * entries + kPaddingBytes / 2}, "grad_halves");
  auto x = x_rows.tile({0, 0}, {kRows, kColumns});
  auto fn_sums = k.fragment(DType::f32, {kColumns, entries}, "fn_sums");
  auto product = k.fragment(DType::f32, {kRows, kColumns}, "product");  // (rows, order)
  auto product_lanes = product.reshape({kRows, kWarps, 8, 8});
  auto next =
      k.fragment(DType::bf16, {kRows, kWarps, 8, 8}, "next");  // grad_residual, a tile ahead
  k.fill(fn_sums, 0.0f);
  const auto fetch = [&](const Value& tile) {
    auto row = k.let("row_ahead", (first_tile + tile) * kRows);
    k.parallel({kRows, kWarps, 8, 8}, [&](Value r, Value w, Value p, Value v) {
      next(r, w, p, v) = grad_residual(row + r, column(w, p, v));
    });
  };
  fetch(i32(0));
  k.pipelined(0, tiles, kStages, [&](Value tile) {
    auto row = k.let("row", (first_tile + tile) * kRows);
    // load
    k.copy(residual.tile({row, first_col}, {kRows, kColumns}), x);
    k.copy(row_grads.tile({row, 0}, {kRows, entries + kBwdVector}), grads);
    k.copy(halves.tile({row, 0}, {kRows, 2 * entries}),
           halves_rows.tile({0, 0}, {kRows, 2 * entries}));
    // grad_fn: tokens outside the tensors are zeros
    for (const int64_t half : {int64_t{0}, entries}) {
      k.gemm(x.transposed(), halves_rows.tile({0, half}, {kRows, entries}), fn_sums,
             {.warp_rows = kWarps, .warp_columns = 1});
    }
    // grad_residual
    k.parallel({kRows, kWarps, 8, 8}, [&](Value r, Value w, Value p, Value v) {
      product_lanes(r, w, v, p) = f32(next(r, w, p, v));
    });
    k.if_(tile + 1 < tiles, [&] { fetch(tile + 1); });
    k.gemm(grads.tile({0, 0}, {kRows, entries}), right, product,
           {.warp_rows = 1, .warp_columns = kWarps, .tf32 = ir::Tf32::truncate});
    k.parallel({kRows, kWarps, 8, 8}, [&](Value r, Value w, Value p, Value v) {
      auto h = column(w, p, v);
      // fixes the order of the two reads
      Value summand = product_lanes(r, w, v, p), grad = grads(r, entries);
      Value gradient = fma(f32(x(r, h - first_col)), grad, summand);
      grad_residual(row + r, h) = cast(DType::bf16, gradient);
    });
  });
  k.copy(fn_sums, partials(at.y).tile({first_col, 0}, {kColumns, entries}));
  return k.finish();
}

}  // namespace tessera::kernels::mhc
