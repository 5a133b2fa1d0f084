// All mixes of a sub-layer from the projected residual.
//
// Shapes   products [parts, tokens * entries], squares [parts, tokens], scale [3], base [entries],
//          pre_mix and post_mix [tokens, streams], comb_mix [tokens, streams, streams]
// Dtypes   f32
// Method   a token on as many lanes as its matrix has elements; the parts of a block's tokens are
//          summed by all of its threads first
// Maths    projection.h, mix_sequences.h, sinkhorn.h: the sequences of norm_fn_fwd,
//          pre_split_mixes_fwd and sinkhorn_fwd
// Tuned    H200; see SumBlock

#include "kernels/mhc/mixes_kernel.h"

#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/mix_sequences.h"
#include "kernels/mhc/sinkhorn.h"

namespace tessera::kernels::mhc {

ir::Kernel build_mixes(const MixesSpec& s) {
  using namespace dsl;
  const int64_t n = s.streams, entries = n * (n + 2);
  const MatrixLanes matrix{n};
  const SumBlock block(s.sum, matrix.lanes());
  Builder k("pre_big_fuse_mixes");
  auto tokens = k.dim("tokens");
  std::vector<Ref> parts;  // products and squares, absent without columns
  if (s.sum.parts > 0) {
    parts.push_back(
        k.input("products", DType::f32, {s.sum.parts, tokens * entries}, {.align = s.sum.align}));
    parts.push_back(k.input("squares", DType::f32, {s.sum.parts, tokens}, {.align = 4}));
  }
  auto scale = k.input("scale", DType::f32, {3}, {.align = 4});
  auto base = k.input("base", DType::f32, {entries}, {.align = 4});
  auto pre_mix = k.output("pre_mix", DType::f32, {tokens, n}, {.align = 4});
  auto post_mix = k.output("post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto comb_mix = k.output("comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  auto norm_eps = k.scalar("norm_eps", DType::f32);
  auto pre_eps = k.scalar("pre_eps", DType::f32);
  auto sinkhorn_eps = k.scalar("sinkhorn_eps", DType::f32);
  auto post_mult = k.scalar("post_mult_value", DType::f32);
  auto repeat = k.scalar("sinkhorn_repeat", DType::i32);
  auto at = k.launch({ceil_div(tokens, block.rows)}, {.threads = block.threads});
  k.wait_for_previous_kernel();
  k.let_next_kernel_start();

  auto first_token = k.let("first_token", at.x * block.rows);
  std::optional<SummedParts> sums;
  if (!parts.empty()) sums.emplace(k, s.sum, parts[0], parts[1], first_token, block.rows);
  k.if_(k.warp() < block.rows * matrix.lanes() / 32, [&] {
    auto row = k.let("row", k.thread() / matrix.lanes());
    auto token = k.let("token", first_token + row);
    auto lane = k.let("matrix_lane", k.thread() % matrix.lanes());
    auto i = k.let("i", matrix.row(k.thread()));
    auto o = k.let("o", matrix.col(k.thread()));

    // norm: the factor of the token, then z of one entry
    Value factor = Arg(0.0f).value();
    if (sums) factor = k.let("factor", norm_factor(sums->square(row), s.width, norm_eps));
    const auto z_of = [&](const Value& j) {
      Value mix = Arg(0.0f).value();
      if (sums) mix = k.let("mix", sums->product(row, j) * factor);
      return k.let("z", mix_logit(mix, scale(min(j / n, 2)), base(j)));
    };
    // the mixes of the sub-layer's input and output
    for (int64_t first = 0; first < 2 * n; first += matrix.lanes()) {
      auto j = k.let("j", lane + first);
      k.if_(j < 2 * n, [&] {
        auto z = z_of(j);
        k.if_else(
            j < n, [&] { pre_mix(token, j) = mhc::pre_mix(z, pre_eps); },
            [&] { post_mix(token, j - n) = mhc::post_mix(z, post_mult); });
      });
    }
    // the mix of the streams; lanes outside of the matrix take part in the shuffles
    auto logit = z_of(2 * n + min(i * n + o, n * n - 1));
    comb_mix(token, i, o) = sinkhorn(k, matrix, k.thread(), logit, repeat, sinkhorn_eps);
  });
  return k.finish();
}

}  // namespace tessera::kernels::mhc
