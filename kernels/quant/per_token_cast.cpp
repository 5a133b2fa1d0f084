// per_token_cast: casts rows to e4m3 or e2m1 with one scale per group of columns.
//
// Method   one pass: load a tile, amax per group (warp shuffles), scales, multiply, store.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, floor) / max, code = cast(x * (max / max(amax, floor))): see
//          scale_factor.h
// Tuned    H200; see pick_token_tile.

#include <array>

#include "kernels/quant/parts/recast.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build_cast(const TokenCastSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));

  Builder k("per_token_cast");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  auto out = k.output("out", s.format, {rows.tokens, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, num_blocks(s.hidden, s.group));
  // Launch bound of 64 registers: by itself ptxas aims at 16 blocks and delays half of the loads.
  const int blocks = is_ordinary_group(s.group) ? 8 : 0;
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, blocks);

  // load
  auto x_frag = load_tile(k, rows, at, tile);  // (rows, cols)

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(x_frag.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(s.format), amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });

  // cast and store
  auto codes = k.fragment(s.format, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(s.format, f32(x_frag(r, c)) * inverse(r, c / tile.group));
  });
  k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(c.has("x_sf") ? build_recast : build_cast, token_cast_spec(c));
}

}  // namespace

const Op per_token_cast_op{
    .name = "per_token_cast",
    .family = "quant",
    .purpose = "rows to 8-bit or 4-bit floats with one scale per group of columns",
    .signature = R"(
      x          bf16/f32/e4m3/e2m1 [T, H] rows
      x_sf?      SF(x_block_size) x_sf_layout     iff x is e4m3/e2m1
      -> out     format [T, H] align 16
      -> out_sf  SF(1,num_per_channels) sf_layout
      param      format {e4m3, e2m1}
      param      num_per_channels {16, 32, 64, 128, H}
      param      x_block_size tuple = none        iff x_sf
      param      x_sf_layout, sf_layout = row_major
      param      round_sf bool = false
      let        br, bc = x_block_size
      need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
      limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
      need       H % 2 = 0 if format = e2m1
      limit      H <= 2147483647
      need       num_per_channels in {16, 32, 64, 128} if x_sf
      need       bc % 16 = 0 and (bc % num_per_channels = 0 or num_per_channels % bc = 0)
      |          if x_sf on x_block_size "blocks of x and groups of 'out' do not nest"
      need       round_sf if sf_layout = packed_ue8m0 on sf_layout
      |          "packed_ue8m0 scales are powers of two"
    )",
    .launches = launches,
    .examples = R"(
      T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=13 H=576 x=f32 format=e4m3 num_per_channels=128 round_sf=true
      T=9 H=320 x=bf16 format=e4m3 num_per_channels=16
      T=5 H=2048 x=f32 format=e4m3 num_per_channels=32 round_sf=true
      T=6 H=640 x=bf16 format=e4m3 num_per_channels=64 round_sf=true
      T=3 H=576 x=bf16 format=e4m3 num_per_channels=576
      T=2 H=7168 x=f32 format=e4m3 num_per_channels=7168 round_sf=true
      T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0
      T=13 H=576 x=f32 format=e2m1 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0
      T=7 H=2048 x=bf16 format=e2m1 num_per_channels=128 sf_layout=col_major_tma
      T=3 H=576 x=bf16 format=e4m3 num_per_channels=576 round_sf=true sf_layout=packed_ue8m0
      T=13 H=320 x=e4m3 x_block_size=32,32 format=e2m1 num_per_channels=128 round_sf=true
      T=13 H=576 x=e4m3 x_block_size=128,128 format=e4m3 num_per_channels=32 round_sf=true x_sf_layout=packed_ue8m0 sf_layout=packed_ue8m0
      T=9 H=640 x=e2m1 x_block_size=1,64 format=e4m3 num_per_channels=64 round_sf=true x_sf_layout=col_major_tma sf_layout=col_major_tma)",
    .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=32 round_sf=true
      T=8001 H=7168 x=f32 format=e4m3 num_per_channels=128
      T=8001 H=7168 x=f32 format=e4m3 num_per_channels=32 round_sf=true
      T=8001 H=7168 x=f32 format=e4m3 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=f32 format=e2m1 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0
      T=8001 H=7168 x=e4m3 x_block_size=128,128 format=e4m3 num_per_channels=32 round_sf=true x_sf_layout=packed_ue8m0 sf_layout=packed_ue8m0
      T=8001 H=7168 x=e4m3 x_block_size=128,128 format=e2m1 num_per_channels=128 round_sf=true x_sf_layout=packed_ue8m0 sf_layout=packed_ue8m0
      T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=7168
      T=8001 H=576 x=bf16 format=e4m3 num_per_channels=128
      T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0
      T=128 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=128 H=7168 x=bf16 format=e4m3 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0)"};

}  // namespace tessera::kernels
