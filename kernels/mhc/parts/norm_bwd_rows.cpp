// The first kernel of norm_fn_bwd: the gradients of a token's products and of its norm.
//
// Shapes   norm_bwd_workspace.h
// Method   one warp per token.
// Maths    da = tf32(grad_out * r), nearest, ties away. dq = (dr * r) / (q + c) / -2, dr by xor 16, 8,
//          4, 2, 1. The 11 bits of da are exactly the sum of two bf16 numbers.

#include "dsl/builder.h"
#include "kernels/mhc/parts/norm_bwd_kernel.h"
#include "kernels/mhc/parts/norm_bwd_workspace.h"
#include "kernels/mhc/parts/part_sum.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int kRowThreads = 128;

}  // namespace

ir::Kernel build_norm_bwd_rows(const NormBwdSpec& s) {
  using namespace dsl;
  const int64_t entries = padded_entries(s.entries);
  Builder k("norm_fn_bwd_rows");
  auto tokens = k.dim("tokens");
  auto grad_out = k.input("grad_out", DType::f32, {tokens, s.entries}, {.align = 4});
  auto out_mul = k.input("out_mul", DType::f32, {tokens, s.entries}, {.align = 4});
  auto sqrsum = k.input("sqrsum", DType::f32, {tokens}, {.align = 4});
  auto row_grads = k.output("row_grads", DType::f32, {tokens, entries + kBwdVector}, {.align = 4});
  auto halves = k.output("halves", DType::bf16, {tokens, 2 * entries}, {.align = 2});
  auto eps = k.scalar("norm_eps", DType::f32), width_eps = k.scalar("width_eps", DType::f32);
  auto at = k.launch({ceil_div(tokens, kRowThreads / 32)}, {.threads = kRowThreads});
  k.let_next_kernel_start();

  // A warp after the last token repeats that token; lanes after the last entry hold 0.
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
  Value products = product, grads = grad;  // fixes the order of the two reads
  auto factor_grad = k.let("factor_grad", k.warp_sum(grads * products));
  auto square_grad = factor_grad * factor / (square + width_eps) / -2.0f;

  // The upper seven mantissa bits, and the other three if any is set.
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

}  // namespace tessera::kernels::mhc
