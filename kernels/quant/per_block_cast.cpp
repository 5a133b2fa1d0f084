// per_block_cast: casts blocks of rows and columns to e4m3 or e2m1, one scale per block.
//
// Method   one pass: a thread block loads a row of scale blocks into registers, takes the maximum
//          of each (shuffles, then shared memory), scales, multiplies and stores. x is read once
//          and out is written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, floor) / max, code = cast(x * (max / max(amax, floor))): see
//          scale_factor.h
// Tuned    H100: 8001 x 7168 bf16 take 60 us to e4m3, 99 % of copy, and 53 us to e2m1 in blocks of
//          32 x 32.

#include "kernels/quant/parts/block_cast.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build(const BlockCastSpec& s) {
  using namespace dsl;
  const BlockTile tile = pick_block_tile(s);

  Builder k("per_block_cast");
  const BlockMatrix in = declare_block_matrix(k, s);  // x [tokens, hidden]
  auto out = k.output("out", s.format, {in.tokens, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, in.block_rows, num_blocks(s.hidden, s.block_cols));
  const TileOrigin at = launch_blocks(k, s, tile, out_sf.rows(), s.sf_layout);

  auto x_frag = load_blocks(k, s, tile, in.x, at);                        // (rows, cols)
  auto amax = block_amax(k, tile, x_frag);                                // (blocks)
  auto inverse = k.fragment(inverse_dtype(s), {tile.blocks}, "inverse");  // (blocks)
  k.parallel({tile.blocks}, [&](Value b) {
    auto sf = scale_factor(k, quant_format(s.format), amax(b), s.round_sf);
    inverse(b) = cast(inverse_dtype(s), sf.inverse);
    out_sf.store(at.row, at.col_tile * tile.blocks + b, sf);
  });
  store_block_codes(k, s, tile, x_frag, inverse, out, at);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, block_cast_spec(c));
}

}  // namespace

const Op per_block_cast_op{
    .name = "per_block_cast",
    .family = "quant",
    .purpose = "blocks of rows and columns to 8-bit or 4-bit floats with one scale per block",
    .signature = R"(
      x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
      -> out     format [T, H] align 16
      -> out_sf  SF(block_size) sf_layout
      param      format {e4m3, e2m1}
      param      block_size tuple of {32, 128}
      param      sf_layout = row_major
      param      round_sf bool = false
      let        br, bc = block_size
      need       H % 64 = 0
      limit      H <= 2147483647
      need       round_sf if sf_layout = packed_ue8m0 on sf_layout
      |          "packed_ue8m0 scales are powers of two"
    )",
    .launches = launches,
    .examples = R"(
      T=130 H=576 x=bf16 format=e4m3 block_size=128,128 round_sf=true
      T=130 H=576 x=f32 format=e2m1 block_size=128,128
      T=45 H=7168 x=bf16 format=e2m1 block_size=32,32 round_sf=true sf_layout=packed_ue8m0
      T=45 H=576 x=f32 format=e4m3 block_size=32,32 round_sf=true sf_layout=packed_ue8m0
      T=45 H=1024 x=bf16 format=e4m3 block_size=32,128 sf_layout=col_major_tma
      T=130 H=1024 x=f32 format=e2m1 block_size=128,32 round_sf=true sf_layout=col_major_tma)",
    .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 block_size=128,128 round_sf=true
      T=8001 H=7168 x=bf16 format=e4m3 block_size=128,128 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=f32 format=e4m3 block_size=128,128 round_sf=true
      T=8001 H=7168 x=f32 format=e4m3 block_size=128,128 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=bf16 format=e2m1 block_size=32,32 round_sf=true
      T=8001 H=7168 x=bf16 format=e2m1 block_size=32,32
      T=1 H=7168 x=bf16 format=e4m3 block_size=128,128 round_sf=true
      T=128 H=7168 x=bf16 format=e4m3 block_size=128,128 round_sf=true)"};

}  // namespace tessera::kernels
