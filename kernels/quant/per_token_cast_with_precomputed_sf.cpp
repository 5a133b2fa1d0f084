// per_token_cast_with_precomputed_sf: casts rows to e4m3 or e2m1 with given scales.
//
// Method   one pass: load a tile and its scales, invert, multiply, store.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    code = cast(x * (1 / sf)), an IEEE division
// Tuned    as per_token_cast

#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build(const TokenCastSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, 1);

  Builder k("per_token_cast_with_precomputed_sf");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  const ScaleReader sf(k, "sf", SfLayout::row_major, rows.tokens, num_blocks(s.hidden, s.group));
  auto out = k.output("out", s.format, {rows.tokens, s.hidden});
  const TileOrigin at = launch_tiles(k, rows.tokens, tile.rows, s.hidden, tile.cols, tile.threads);

  // load
  auto x_frag = load_tile(k, rows, at, tile);                                  // (rows, cols)
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    inverse(r, g) = 1.0f / sf.load(at.row + r, at.col_tile * tile.groups + g);
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
  go.add(build, token_cast_spec(c));
}

}  // namespace

const Op per_token_cast_with_precomputed_sf_op{
    .name = "per_token_cast_with_precomputed_sf",
    .family = "quant",
    .purpose = "rows to 8-bit or 4-bit floats with given scales per group of columns",
    .signature = R"(
      x          bf16/f32 [T, H] rows
      sf         f32 [T, C] rows
      -> out     format [T, H] align 16
      param      format {e4m3, e2m1}
      param      num_per_channels {16, 32, 64, 128, H}
      let        C = ceil(H / num_per_channels)
      need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
      limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
      need       H % 2 = 0 if format = e2m1
      limit      H <= 2147483647
    )",
    .launches = launches,
    .examples = R"(
      T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=13 H=576 x=f32 format=e2m1 num_per_channels=32
      T=9 H=320 x=bf16 format=e4m3 num_per_channels=16
      T=3 H=576 x=bf16 format=e2m1 num_per_channels=576)",
    .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=8001 H=7168 x=bf16 format=e2m1 num_per_channels=32)"};

}  // namespace tessera::kernels
