// per_block_cast_with_precomputed_sf: casts blocks of rows and columns to e4m3 or e2m1 with given
// scales.
//
// Method   one pass: a thread block loads a row of scale blocks and their scales, inverts the
//          scales, multiplies and stores. x is read once and out is written once, so the bound is
//          bytes / copy bandwidth.
// Maths    code = cast(x * (1 / sf)), an IEEE division
// Tuned    see per_block_cast.

#include "kernels/quant/parts/block_cast.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build(const BlockCastSpec& s) {
  using namespace dsl;
  const BlockTile tile = pick_block_tile(s);

  Builder k("per_block_cast_with_precomputed_sf");
  const BlockMatrix in = declare_block_matrix(k, s);  // x [tokens, hidden]
  const ScaleReader sf(k, "sf", SfLayout::row_major, in.block_rows,
                       num_blocks(s.hidden, s.block_cols));
  auto out = k.output("out", s.format, {in.tokens, s.hidden});
  const TileOrigin at = launch_blocks(k, s, tile, in.block_rows, SfLayout::row_major);

  auto x_frag = load_blocks(k, s, tile, in.x, at);                  // (rows, cols)
  auto inverse = k.fragment(DType::f32, {tile.blocks}, "inverse");  // (blocks)
  k.parallel({tile.blocks},
             [&](Value b) { inverse(b) = 1.0f / sf.load(at.row, at.col_tile * tile.blocks + b); });
  store_block_codes(k, s, tile, x_frag, inverse, out, at);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, block_cast_spec(c));
}

}  // namespace

const Op per_block_cast_with_precomputed_sf_op{
    .name = "per_block_cast_with_precomputed_sf",
    .family = "quant",
    .purpose = "blocks of rows and columns to 8-bit or 4-bit floats with given scales",
    .signature = R"(
      x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
      sf         SF(block_size) of x
      -> out     format [T, H] align 16
      param      format {e4m3, e2m1}
      param      block_size tuple of {32, 128}
      let        br, bc = block_size
      need       H % 64 = 0
      limit      H <= 2147483647
    )",
    .launches = launches,
    .examples = R"(
      T=130 H=576 x=bf16 format=e4m3 block_size=128,128
      T=45 H=576 x=f32 format=e2m1 block_size=32,32
      T=45 H=1024 x=bf16 format=e2m1 block_size=32,128
      T=130 H=1024 x=f32 format=e4m3 block_size=128,32)",
    .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 block_size=128,128
      T=8001 H=7168 x=bf16 format=e2m1 block_size=32,32
      T=1 H=7168 x=bf16 format=e4m3 block_size=128,128
      T=128 H=7168 x=bf16 format=e4m3 block_size=128,128)"};

}  // namespace tessera::kernels
