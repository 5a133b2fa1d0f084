// per_channel_cast_and_transpose: casts columns to e4m3 with one scale per run of tokens,
// transposed.
//
// Method   one pass, in registers. A thread holds 16 tokens x 8 columns, so it loads 16-byte
//          vectors along a row and stores 16-byte vectors along a column; eight neighbours load 128
//          bytes. The threads of a run divide the scales among them and exchange maxima and factors
//          through shared memory. The bound is bytes / copy bandwidth.
// Maths    scale = max(amax, floor) / max, code = cast(x * (max / max(amax, floor))): see
//          scale_factor.h
// Tuned    H200: tiles of 16 x 4 and 8 x 8 per thread take 9 % longer, neighbours along the tokens
//          5 %: whole lines are worth more to reads than to writes

#include "dsl/builder.h"
#include "kernels/quant/parts/channel_tile.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t hidden, run;
  int32_t align;  // bytes of x, at most 16
  int32_t round_sf;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  constexpr int64_t kTokens = ChannelTile::kTokens;
  const ChannelTile tile = kTransposedTile;
  Builder k("per_channel_cast_and_transpose");
  auto tokens = k.dim("tokens", {.multiple_of = kTokens});
  auto x = k.input("x", DType::bf16, {tokens, s.hidden}, {.align = s.align});
  auto out = k.output("out", DType::e4m3, {s.hidden, tokens});
  auto out_sf = k.output("out_sf", DType::f32, {tokens / s.run, s.hidden});
  // Launch bound of 128 registers: with 96 the kernel takes 4 % longer.
  const TileOrigin at = launch_tiles(k, tokens, kTokens, s.hidden, tile.cols, tile.threads(), 8);
  k.assume(at.row + (kTokens - 1) < tokens);  // a multiple of kTokens, so
  k.assume(at.row / s.run + (kTokens / s.run - 1) < tokens / s.run);

  auto x_frag = k.fragment(DType::bf16, tile.values(), "x_frag");  // (tokens, cols)
  k.copy(x.tile({at.row, at.col}, {kTokens, tile.cols}), x_frag);
  cast_columns(k, tile, s.run, s.round_sf != 0, at, x_frag, out_sf, out, /*transposed=*/true);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build,
         Spec{c.i32("H"), c.i32("num_per_tokens"), c.align({"x"}), c.flag("round_sf") ? 1 : 0});
}

}  // namespace

const Op per_channel_cast_and_transpose_op{
    .name = "per_channel_cast_and_transpose",
    .family = "quant",
    .purpose = "columns to 8-bit floats with one scale per run of tokens, transposed",
    .signature = R"(
      x          bf16 [T, H]
      -> out     e4m3 [H, T] align 16
      -> out_sf  SF(num_per_tokens,1) of x
      param      num_per_tokens {32, 128}
      param      round_sf bool = false
      param      format {e4m3} = e4m3
      need       T % 128 = 0
      need       H % 64 = 0
      limit      H <= 2147483647
    )",
    .launches = launches,
    .examples = R"(
      T=256 H=192 num_per_tokens=128 round_sf=true; T=128 H=576 num_per_tokens=32)",
    .bench = R"(
      T=8064 H=7168 num_per_tokens=128 round_sf=true; T=8064 H=7168 num_per_tokens=32 round_sf=true
      T=8064 H=7168 num_per_tokens=128; T=128 H=7168 num_per_tokens=128 round_sf=true)"};

}  // namespace tessera::kernels
