// per_block_cast_with_sf_only: the scales of per_block_cast.
//
// Method   one pass: a thread block loads a row of scale blocks and takes the maximum of each. x is
//          read once, so the bound is bytes / read bandwidth. The loads do not evict from L2.
// Maths    see scale_factor.h
// Tuned    see per_block_cast.

#include "kernels/quant/parts/block_cast.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

ir::Kernel build(const BlockCastSpec& s) {
  using namespace dsl;
  const BlockTile tile = pick_block_tile(s);

  Builder k("per_block_cast_with_sf_only");
  const BlockMatrix in = declare_block_matrix(k, s);  // x [tokens, hidden]
  const ScaleWriter out_sf(k, s.sf_layout, in.block_rows, num_blocks(s.hidden, s.block_cols));
  const TileOrigin at = launch_blocks(k, s, tile, out_sf.rows(), s.sf_layout);

  auto x_frag = load_blocks(k, s, tile, in.x.cached(CacheHint::evict_first), at);  // (rows, cols)
  auto amax = block_amax(k, tile, x_frag);                                         // (blocks)
  k.parallel({tile.blocks}, [&](Value b) {
    auto sf = scale_factor(k, quant_format(s.format), amax(b), s.round_sf);
    out_sf.store(at.row, at.col_tile * tile.blocks + b, sf);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, block_cast_spec(c));
}

}  // namespace

const Op per_block_cast_with_sf_only_op{.name = "per_block_cast_with_sf_only",
                                        .family = "quant",
                                        .purpose = "the scales of per_block_cast alone",
                                        .signature = R"(
      x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
      -> out_sf  SF(block_size) sf_layout of x
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
      T=130 H=576 x=bf16 format=e4m3 block_size=128,128
      T=45 H=576 x=f32 format=e2m1 block_size=32,32 round_sf=true sf_layout=packed_ue8m0
      T=45 H=1024 x=bf16 format=e4m3 block_size=32,128 sf_layout=col_major_tma)",
                                        .bench = R"(
      T=8001 H=7168 x=bf16 format=e4m3 block_size=128,128
      T=8001 H=7168 x=bf16 format=e2m1 block_size=32,32 round_sf=true sf_layout=packed_ue8m0
      T=1 H=7168 x=bf16 format=e4m3 block_size=128,128
      T=128 H=7168 x=bf16 format=e4m3 block_size=128,128)"};

}  // namespace tessera::kernels
