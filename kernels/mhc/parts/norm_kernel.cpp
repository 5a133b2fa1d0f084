// Adds up and scales the products and squares of a projection.
//
// Shapes   products [stored, tokens * entries], squares [tokens, stored], out and out_mul [tokens,
//          entries], sqrsum [tokens]
// Dtypes   f32
// Method   all threads load the parts of a group of tokens, then one lane adds up each entry. Few
//          bytes.
// Maths    projection.h; norm_factor with an approximate rsqrt, one product
// Tuned    H200

#include "kernels/mhc/parts/norm_kernel.h"

#include <optional>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int kThreads = 128;  // one warp per token

/// Tokens of a block, as many as fit in shared memory with their parts. With few tokens one warp does
/// the sums alone, and the others only help to load.
int64_t block_rows(const NormSpec& s) {
  constexpr int64_t kMostBytes = 48 << 10;
  int64_t rows = s.has_few_tokens != 0 ? 1 : kThreads / 32;
  while (rows > 1 && 4 * s.sum.stored() * rows * (s.sum.entries + 1) > kMostBytes) rows /= 2;
  return rows;
}

}  // namespace

ir::Kernel build_norm(const NormSpec& s) {
  using namespace dsl;
  Builder k("norm_fn_fwd");
  auto tokens = k.dim("tokens");
  std::vector<Ref> products, squares;  // absent without columns
  if (s.sum.parts > 0) {
    products.push_back(k.input("products", DType::f32, {s.sum.stored(), tokens * s.entries},
                               {.align = s.sum.align}));
    squares.push_back(k.input("squares", DType::f32, {tokens, s.sum.stored()}, {.align = 4}));
  }
  auto out = k.output("out", DType::f32, {tokens, s.entries}, {.align = 4});
  std::vector<Ref> saved;
  if (s.save != 0) {
    saved.push_back(k.output("out_mul", DType::f32, {tokens, s.entries}, {.align = 4}));
    saved.push_back(k.output("sqrsum", DType::f32, {tokens}, {.align = 4}));
  }
  auto eps = k.scalar("norm_eps", DType::f32);
  const int64_t rows = block_rows(s);
  auto at = k.launch({ceil_div(tokens, rows)}, {.threads = kThreads});
  k.wait_for_previous_kernel();

  auto first_token = k.let("first_token", at.x * rows);
  std::optional<SummedParts> sums;
  if (s.sum.parts > 0) sums.emplace(k, s.sum, products[0], squares[0], first_token, rows);
  auto j = k.let("j", k.lane());
  k.if_(k.warp() < rows && j < s.entries, [&] {
    auto token = k.let("token", first_token + k.warp());
    Value product = Arg(0.0f).value(), square = product, scaled = product;
    if (sums) {
      product = sums->product(k.warp(), j);
      square = sums->square(k.warp());
      scaled = product * norm_factor(square, s.width, eps);
    }
    out(token, j) = scaled;
    if (!saved.empty()) {
      saved[0](token, j) = product;
      k.if_(j == 0, [&] { saved[1](token) = square; });
    }
  });
  return k.finish();
}

}  // namespace tessera::kernels::mhc
