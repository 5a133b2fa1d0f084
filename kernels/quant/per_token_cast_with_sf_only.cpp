// per_token_cast_with_sf_only: the scales of per_token_cast.
//
// Method   one pass: load a tile, amax per group (warp shuffles), scales. x is read once, so the
//          bound is bytes / read bandwidth. The loads evict first, so that x does not displace
//          other data in L2.
// Maths    see scale_factor.h
// Tuned    as per_token_cast

#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build(const TokenCastSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));

  Builder k("per_token_cast_with_sf_only");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, num_blocks(s.hidden, s.group));
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads);

  // load
  auto x_frag = load_tile(k, {rows.tokens, rows.x.cached(CacheHint::evict_first)}, at, tile);

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(x_frag.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(s.format), amax(r, g), s.round_sf);
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, token_cast_spec(c));
}

}  // namespace

const Op per_token_cast_with_sf_only_op{.name = "per_token_cast_with_sf_only",
                                        .family = "quant",
                                        .purpose = "the scales of per_token_cast alone",
                                        .signature = R"(
      x          bf16/f32 [T, H] rows
      -> out_sf  SF(1,num_per_channels) sf_layout of x
      param      format {e4m3, e2m1}
      param      num_per_channels {16, 32, 64, 128, H}
      param      sf_layout = row_major
      param      round_sf bool = false
      need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
      limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
      need       H % 2 = 0 if format = e2m1
      limit      H <= 2147483647
      need       round_sf if sf_layout = packed_ue8m0 on sf_layout
      |          "packed_ue8m0 scales are powers of two"
    )",
                                        .launches = launches,
                                        .examples = R"(
      T=37 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=13 H=576 x=f32 format=e2m1 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0
      T=7 H=2048 x=bf16 format=e4m3 num_per_channels=64 sf_layout=col_major_tma
      T=3 H=576 x=bf16 format=e4m3 num_per_channels=576 round_sf=true sf_layout=packed_ue8m0)",
                                        .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=128
      T=8001 H=7168 x=bf16 format=e2m1 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0)"};

}  // namespace tessera::kernels
