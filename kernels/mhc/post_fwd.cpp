// post_fwd: the residual streams after a sub-layer, from its output and the streams before it.
//
// Method   one 16-byte vector of the output and of every stream per thread, all loads before the
//          first product; no shared memory. Every byte is moved once, so the bound is bytes / copy
//          bandwidth.
// Maths    apply_post_mix of mix_sequences.h: the rounded product of stream 0, fma of the output, fma
//          of streams 1, 2, ...; one rounding to bf16
// Tuned    H200; see pick_row_tile, which `tessera tune` may replace.

#include "kernels/mhc/parts/mix_sequences.h"
#include "kernels/mhc/parts/row_choice.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of the bf16 tensors
  mhc::RowChoice tile;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = s.tile.tile(s.hidden);
  const int64_t n = s.streams;
  OpBuilder k(post_fwd_op, {{"n", n}, {"H", s.hidden}});
  auto x = k.tensor("x", {.align = s.align});
  auto residual = k.tensor("residual", {.align = s.align});
  auto post_mix = k.tensor("post_mix"), comb_mix = k.tensor("comb_mix");
  auto out = k.tensor("out", {.align = s.align});
  auto at = k.launch({ceil_div(k.extent("T"), tile.rows) * tile.chunks}, {.threads = tile.threads});
  auto first_token = k.let("first_token", at.x / tile.chunks * tile.rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
    auto token = first_token + row;
    auto h = first_col + col;
    // load
    Value layer_output = f32(x(token, h));
    std::vector<Value> streams, post;
    std::vector<std::vector<Value>> comb(static_cast<size_t>(n));  // [o][i]
    for (int64_t i = 0; i < n; ++i) streams.push_back(f32(residual(token, i, h)));
    for (int64_t o = 0; o < n; ++o) {
      post.push_back(post_mix(token, o));
      for (int64_t i = 0; i < n; ++i) comb[static_cast<size_t>(o)].push_back(comb_mix(token, i, o));
    }
    // mix and store
    for (int64_t o = 0; o < n; ++o) {
      const auto at_o = static_cast<size_t>(o);
      out(token, o, h) =
          cast(DType::bf16, mhc::apply_post_mix(post[at_o], layer_output, comb[at_o], streams));
    }
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{c.i32("n"), c.i32("H"), c.align({"x", "residual", "out"}), {}};
  s.tile = mhc::choose_row_tile(c.op().name,
                                {{"streams", s.streams}, {"hidden", s.hidden}, {"align", s.align}},
                                c["T"], c.device());
  go.add(build, s);
}

}  // namespace

const Op post_fwd_op{
    .name = "post_fwd",
    .family = "mhc",
    .purpose = "new residual streams from a sub-layer's output and the mixed old ones",
    .signature = R"(
      x         bf16 [T.., H]         # the sub-layer's output
      residual  bf16 [T.., n, H]
      post_mix  f32 [T.., n]
      comb_mix  f32 [T.., n, n]       # rows are the streams read
      -> out    bf16 [T.., n, H]
      need      n >= 1 on residual "there must be a stream"
      limit     n <= 8 on residual "so many streams are not supported"   # sums in registers
    )",
    .launches = launches,
    .examples = "T=5 n=4 H=7168; T=3 n=4 H=2560; T=7 n=4 H=1280; T=9 n=2 H=512; T=3 n=3 H=100",
    .bench = R"(
      T=8192 n=4 H=7168; T=4096 n=4 H=7168; T=512 n=4 H=7168; T=128 n=4 H=7168; T=1 n=4 H=7168
      T=8192 n=4 H=4096; T=8192 n=4 H=2560; T=8192 n=4 H=1280)"};

}  // namespace tessera::kernels
