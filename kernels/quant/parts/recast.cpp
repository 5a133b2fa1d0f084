// recast: requantises rows of codes with scales to codes with other scales.
//
// Dtypes   x and out e4m3|e2m1, x_sf and out_sf f32 or the exponents of powers of two
// Method   as per_token_cast. Blocks and groups are nested, so a group is a whole number of runs
//          under one scale: amax is the maximum over its runs, each times its scale.
// Maths    amax = max |code| * x_scale; code' = cast(code * (x_scale * inverse)), the factor
//          rounded once

#include "kernels/quant/parts/recast.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_rows.h"

namespace tessera::kernels {
namespace {

/// True if codes times factors have the same e2m1 code as f16. Factors are powers of two, at most
/// 2^11 where a code is neither zero nor NaN, so products lose bits only below 2^-24, far below the
/// first tie at 1/4. Larger finite factors multiply only zeros.
bool products_fit_f16(const TokenCastSpec& s) {
  return s.in == DType::e4m3 && s.format == DType::e2m1 && s.round_sf &&
         s.x_sf_layout == SfLayout::packed_ue8m0;
}

}  // namespace

ir::Kernel build_recast(const TokenCastSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));
  const int64_t run = std::min(s.block_cols, s.group);  // columns of one group under one scale
  const int64_t runs = tile.cols / run;                 // in a row of the tile
  const int64_t runs_per_group = s.group / run;
  // Tile rows that share their scales: all of them if the tile lies within one row of blocks.
  const int64_t rows_together = std::gcd(s.block_rows, tile.rows);

  Builder k("per_token_cast");
  const TokenRows rows = declare_rows(k, s);
  const ScaleReader x_sf(k, "x_sf", s.x_sf_layout, ceil_div(rows.tokens, s.block_rows),
                         num_blocks(s.hidden, s.block_cols));
  auto out = k.output("out", s.format, {rows.tokens, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, num_blocks(s.hidden, s.group));
  // Launch bound: f16 arithmetic is the limit, and wants full occupancy.
  const int blocks = products_fit_f16(s) ? 16 : 0;
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, blocks);

  // load
  auto x_frag = load_tile(k, rows, at, tile);  // (rows, cols)
  const int64_t scale_rows = tile.rows / rows_together;
  auto x_scale = k.fragment(DType::f32, {scale_rows, runs}, "x_scale");  // (scale rows, runs)
  k.parallel({scale_rows, runs}, [&](Value r, Value i) {
    auto col = at.col_tile * tile.cols + i * run;
    x_scale(r, i) = x_sf.load((at.row + r * rows_together) / s.block_rows, col / s.block_cols);
  });

  // amax per group
  auto run_amax = k.fragment(DType::f32, {tile.rows, runs}, "run_amax");  // (rows, runs)
  k.reduce_absmax(x_frag.reshape({tile.rows, runs, run}), run_amax, Axis(2));
  k.parallel({tile.rows, runs}, [&](Value r, Value i) {
    run_amax(r, i) = run_amax(r, i) * x_scale(r / rows_together, i);
  });
  const Ref amax =  // (rows, groups)
      runs_per_group == 1 ? run_amax : k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");
  if (runs_per_group > 1) {
    k.reduce_max(run_amax.reshape({tile.rows, tile.groups, runs_per_group}), amax, Axis(2));
  }

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(s.format), amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });
  auto factor = k.fragment(DType::f32, {tile.rows, runs}, "factor");  // (rows, runs)
  k.parallel({tile.rows, runs}, [&](Value r, Value i) {
    factor(r, i) = x_scale(r / rows_together, i) * inverse(r, i / runs_per_group);
  });

  // cast and store
  auto codes = k.fragment(s.format, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  if (products_fit_f16(s)) {
    auto factor_f16 = k.fragment(DType::f16, {tile.rows, runs}, "factor_f16");  // (rows, runs)
    k.parallel({tile.rows, runs}, [&](Value r, Value i) {
      const Value f = factor(r, i);
      const Value too_large = f > 32768.0f && f < std::numeric_limits<float>::infinity();
      factor_f16(r, i) = cast(DType::f16, select(too_large, 32768.0f, f));
    });
    auto scaled = k.fragment(DType::f16, {tile.rows, tile.cols}, "scaled");  // (rows, cols)
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { scaled(r, c) = cast(DType::f16, x_frag(r, c)); });
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { scaled(r, c) = scaled(r, c) * factor_f16(r, c / run); });
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { codes(r, c) = cast(s.format, scaled(r, c)); });
  } else {
    k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
      codes(r, c) = cast(s.format, f32(x_frag(r, c)) * factor(r, c / run));
    });
  }
  k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));
  return k.finish();
}

}  // namespace tessera::kernels
