// The kernels of norm_fn_bwd.
//
// Shapes   norm_bwd_kernel.h
// Method   rows: one warp per token. Products: a block takes 256 columns and a run of tokens. Its four
//          warps keep tf32(fn * norm_weight) of 64 columns each in registers, and the sums for grad_fn.
//          Per tile of 16 tokens, a warp multiplies the transposed residual with the gradients of the
//          products in bf16, and these gradients with fn in tf32. The residual comes through shared
//          memory four tiles ahead, and grad_residual in registers one tile ahead. An accumulator
//          lane owns whole vectors of the residual, because the columns are multiplied in another
//          order. Sum: one thread per column. Each byte of the residual and of its gradient is moved
//          once, so the bound is bytes / copy bandwidth.
// Maths    da = tf32(grad_out * r), nearest, ties away. dq = (dr * r) / (q + c) / -2, dr by xor 16, 8,
//          4, 2, 1. grad_residual = bf16(fma(2 x, dq, g + da F')), g the value before, one f32 chain in
//          steps of 8 entries. dF' = x da per run of tokens, ascending in steps of 16; the 11 bits of
//          da are exactly the sum of two bf16 numbers. Runs ascending from +0. A residual that is not
//          finite has r = 0, and 0 times infinity makes its columns of dF' NaN.
// Tuned    H100: 4096 tokens of 4 x 7168 take 293 us, 81 % of copy where the gradients are given.

#include "kernels/mhc/norm_bwd_kernel.h"

#include <algorithm>

#include "dsl/builder.h"
#include "kernels/mhc/part_sum.h"
#include "kernels/mhc/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kWarps = 4;
constexpr int64_t kTilesAhead = 4;
constexpr int64_t kBlocks = 264;       // two per multiprocessor of an H200, all resident at once
constexpr int64_t kFewestTiles = 4;    // of a run
constexpr int64_t kVector = 4;         // of f32
constexpr int64_t kPaddingBytes = 16;  // of a row in shared memory: eight rows on different banks
constexpr int kRowThreads = 128, kSumThreads = 128;

}  // namespace

NormBwdRuns::NormBwdRuns(const NormBwdShape& shape) {
  if (shape.tokens == 0 || shape.width == 0) return;
  const int64_t tiles = (shape.tokens + kBwdRows - 1) / kBwdRows;
  const int64_t most = std::max<int64_t>(1, kBlocks / (shape.width / kBwdColumns));
  tiles_per_run = std::max(kFewestTiles, (tiles + most - 1) / most);
  runs = (tiles + tiles_per_run - 1) / tiles_per_run;
}

int64_t norm_bwd_workspace(const NormBwdShape& shape) {
  const int64_t entries = padded_entries(shape.entries);
  return NormBwdRuns(shape).runs * shape.width * entries + shape.tokens * (2 * entries + kVector);
}

std::vector<More::Tensor> norm_bwd_tensors(const NormBwdShape& shape, const TensorView& workspace) {
  const int64_t entries = padded_entries(shape.entries), runs = NormBwdRuns(shape).runs;
  auto* next = static_cast<float*>(workspace.data);
  const auto take = [&](DType dtype, const Dims& dims, int64_t elements) {
    float* const data = next;
    if (next != nullptr) next += elements;
    return TensorView(data, dtype, dims, workspace.device);
  };
  const TensorView partials =
      take(DType::f32, {runs, shape.width, entries}, runs * shape.width * entries);
  const TensorView row_grads =
      take(DType::f32, {shape.tokens, entries + kVector}, shape.tokens * (entries + kVector));
  const TensorView halves = take(DType::bf16, {shape.tokens, 2 * entries}, shape.tokens * entries);
  return {{"partials", partials}, {"row_grads", row_grads}, {"halves", halves}};
}

ir::Kernel build_norm_bwd_rows(const NormBwdSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  Builder k("norm_fn_bwd_rows");
  auto tokens = k.dim("tokens");
  auto grad_out = k.input("grad_out", DType::f32, {tokens, s.entries}, {.align = 4});
  auto out_mul = k.input("out_mul", DType::f32, {tokens, s.entries}, {.align = 4});
  auto sqrsum = k.input("sqrsum", DType::f32, {tokens}, {.align = 4});
  auto row_grads = k.output("row_grads", DType::f32, {tokens, entries + kVector}, {.align = 4});
  auto halves = k.output("halves", DType::bf16, {tokens, 2 * entries}, {.align = 2});
  auto eps = k.scalar("norm_eps", DType::f32), width_eps = k.scalar("width_eps", DType::f32);
  auto at = k.launch({ceil_div(tokens, kRowThreads / 32)}, {.threads = kRowThreads});
  k.let_next_kernel_start();

  // A warp after the last token repeats it, lanes after the last entry hold 0.
  auto token = k.let("token", at.x * (kRowThreads / 32) + k.warp());
  auto row = k.let("row", min(token, tokens - 1));
  auto j = k.let("j", k.lane());
  auto grad = k.var(DType::f32, 0.0f, "grad"), product = k.var(DType::f32, 0.0f, "product");
  k.if_(j < s.entries, [&] {
    grad = grad_out(row, j);
    product = out_mul(row, j);
  });
  auto square = k.let("square", sqrsum(row));
  auto factor = k.let("factor", norm_factor(square, s.width, eps));
  auto product_grad = k.let("product_grad", round_tf32(grad * factor));
  auto factor_grad = k.let("factor_grad", k.warp_sum(grad * product));
  auto square_grad = factor_grad * factor / (square + width_eps) / -2.0f;

  // The upper seven bits of the mantissa, and the other three where there are such.
  auto high = k.let("high", reinterpret(DType::f32, reinterpret(DType::u32, product_grad) &
                                                        static_cast<uint32_t>(0xFFFF0000U)));
  auto is_finite = !is_nan(product_grad) && !is_inf(product_grad);
  auto low = k.let("low", select(is_finite, product_grad - high, 0.0f));
  k.if_(token < tokens && j < entries, [&] {
    row_grads(token, j) = product_grad;
    halves(token, j) = cast(DType::bf16, high);
    halves(token, entries + j) = cast(DType::bf16, low);
    k.if_(j == 0, [&] { row_grads(token, entries) = 2.0f * square_grad; });
  });
  return k.finish();
}

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
  auto row_grads = k.input("row_grads", DType::f32, {tokens, entries + kVector}, {.align = align});
  auto halves = k.input("halves", DType::bf16, {tokens, 2 * entries}, {.align = align});
  auto grad_residual =
      k.output("grad_residual", DType::bf16, {tokens, s.width}, {.align = s.align});
  auto partials = k.output("partials", DType::f32, {runs, s.width, entries}, {.align = align});
  auto tiles_per_run = k.scalar("tiles_per_run", DType::i32);
  auto at = k.launch({s.width / kColumns, runs}, {.threads = 32 * kWarps, .min_blocks_per_sm = 2});
  auto first_col = k.let("first_col", at.x * kColumns);
  auto first_tile = k.let("first_tile", at.y * tiles_per_run);
  auto tiles = k.let("tiles", min(tiles_per_run, ceil_div(tokens, kRows) - first_tile));

  // Place 8 v + p of a warp's 64 in the order of multiplication is this column: two neighbours p are
  // in one lane, four lanes own 64 bytes of a row.
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
  // What is older than the gradients of the rows has been read by now.
  k.wait_for_previous_kernel();

  auto x_rows = k.shared(DType::bf16, {kRows, kColumns + kPaddingBytes / 2}, "x");
  auto grads = k.shared(DType::f32, {kRows, entries + kVector}, "grads");  // rows as padded ones
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
  k.pipelined(0, tiles, kTilesAhead, [&](Value tile) {
    auto row = k.let("row", (first_tile + tile) * kRows);
    // load
    k.copy(residual.tile({row, first_col}, {kRows, kColumns}), x);
    k.copy(row_grads.tile({row, 0}, {kRows, entries + kVector}), grads);
    k.copy(halves.tile({row, 0}, {kRows, 2 * entries}),
           halves_rows.tile({0, 0}, {kRows, 2 * entries}));
    // grad_fn: tokens outside of the tensors are zeros
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
      auto gradient = fma(f32(x(r, h - first_col)), grads(r, entries), product_lanes(r, w, v, p));
      grad_residual(row + r, h) = cast(DType::bf16, gradient);
    });
  });
  k.copy(fn_sums, partials(at.y).tile({first_col, 0}, {kColumns, entries}));
  return k.finish();
}

ir::Kernel build_norm_bwd_sum(const NormBwdSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  Builder k("norm_fn_bwd_sum");
  auto runs = k.dim("runs");
  auto partials =
      k.input("partials", DType::f32, {runs, s.width, entries}, {.align = s.workspace_align});
  std::vector<Ref> in, weight_grad;  // fn, norm_weight
  if (s.has_weight != 0) {
    in.push_back(k.input("fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align}));
    in.push_back(k.input("norm_weight", DType::f32, {s.width}, {.align = s.fn_align}));
    weight_grad.push_back(
        k.output("grad_norm_weight", DType::f32, {s.width}, {.align = s.fn_align}));
  }
  auto grad_fn = k.output("grad_fn", DType::f32, {s.entries, s.width}, {.align = s.fn_align});
  auto at = k.launch({s.width / kSumThreads}, {.threads = kSumThreads});
  auto h = k.let("h", at.x * kSumThreads + k.thread());

  // load
  std::vector<Value> rows, old;
  for (int64_t j = 0; j < s.entries; ++j) {
    if (s.has_weight != 0) rows.push_back(in[0](j, h));
    old.push_back(grad_fn(j, h));
  }
  k.wait_for_previous_kernel();
  // sum of the runs
  auto sums = k.local(DType::f32, {entries}, "sums");
  k.unrolled(entries, [&](Value j) { sums(j) = 0.0f; });
  k.serial(0, runs, [&](Value run) {
    for (int64_t first = 0; first < entries; first += 4) {
      k.vectorized(4, [&](Value j) { sums(first + j) += partials(run, h, first + j); });
    }
  });
  // add and store
  if (s.has_weight == 0) {
    for (int64_t j = 0; j < s.entries; ++j) grad_fn(j, h) = old[static_cast<size_t>(j)] + sums(j);
    return k.finish();
  }
  auto weight_sum = k.var(DType::f32, 0.0f, "weight_sum");
  for (int64_t j = 0; j < s.entries; ++j) {
    const auto i = static_cast<size_t>(j);
    grad_fn(j, h) = fma(sums(j), in[1](h), old[i]);
    weight_sum = fma(sums(j), rows[i], weight_sum);
  }
  weight_grad[0](h) += weight_sum;
  return k.finish();
}

}  // namespace tessera::kernels::mhc
