// moe_gather_cast: rows of tokens cast to e4m3 at the rows of experts that a plan gives them.
//
// Shapes   x [tokens, hidden], pos_to_pair [rows], out [rows, hidden], out_sf [rows, ceil(hidden / group)]
// Method   the tiles of per_token_cast; a row of a tile is read at the token of its pair. Reads of x meet in L2 where a
//          token has several experts. The bound is bytes / copy bandwidth.
// Maths    per_token_cast of row pair / num_topk; zero bytes in rows without a pair
// Tuned    as per_token_cast

#include <array>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_cast.h"
#include "kernels/quant/parts/token_grid.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct Spec {
  TokenCastSpec cast;
  bool fills, has_tokens;
  std::array<uint8_t, 2> unused;
};

ir::Kernel build(const Spec& spec) {
  using namespace dsl;
  const TokenCastSpec& s = spec.cast;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));

  Builder k("moe_gather_cast");
  auto rows = k.dim("rows");
  std::optional<Ref> x;
  Value tokens = i32(0);
  if (spec.has_tokens) {
    tokens = k.dim("tokens");
    auto stride = k.stride("x_stride", {.multiple_of = s.stride_multiple});
    x = k.input("x", s.in, {tokens, s.hidden}, {.strides = {stride, 1}, .align = s.align});
  }
  auto pairs = k.input("pos_to_pair", DType::i32, {rows}, {.align = 4});
  auto out = k.output("out", DType::e4m3, {rows, s.hidden}, {.align = 16});
  const ScaleWriter out_sf(k, s.sf_layout, rows, num_blocks(s.hidden, s.group));
  auto topk = k.scalar("num_topk", DType::i32);
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, 8);

  // tokens
  auto token = k.fragment(DType::i32, {tile.rows}, "token");  // -1: none
  k.parallel({tile.rows}, [&](Value r) {
    auto row = at.row + r;
    auto pair = k.let("pair", select(row < rows, pairs(row), -1));
    auto of_pair = k.let("of_pair", pair / topk);
    const Value exists = pair >= 0 && of_pair < tokens;
    k.report_unless(exists || pair == -1, out_of_range("pos_to_pair"));
    token(r) = select(exists, of_pair, -1);
  });
  const auto is_valid = [&](const Value& r) { return token(r) >= 0; };

  // load
  auto values = k.fragment(s.in, {tile.rows, tile.cols}, "values");  // (rows, cols)
  if (x) {
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { values(r, c) = (*x)(token(r), at.col + c); });  // 0 outside
  } else {
    k.fill(values, 0.0f);
  }

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(values.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(DType::e4m3), amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    sf.scale = select(is_valid(r), sf.scale, 0.0f);
    if (s.round_sf) sf.exponent = select(is_valid(r), sf.exponent, 0);
    const auto store = [&] { out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf); };
    if (spec.fills) return store();
    k.if_(is_valid(r) || at.row + r >= rows,
          store);  // rows behind the last are the layout's padding
  });

  // cast and store
  auto codes = k.fragment(DType::e4m3, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(DType::e4m3, f32(values(r, c)) * inverse(r, c / tile.group));
  });
  if (spec.fills) {
    k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));
  } else {
    k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
      k.if_(is_valid(r), [&] { out(at.row + r, at.col + c) = codes(r, c); });
    });
  }
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{token_cast_spec(c), c.flag("fill_padding"), c["T"] > 0, {}});
}

}  // namespace

const Op moe_gather_cast_op{
    .name = "moe_gather_cast",
    .family = "serving",
    .purpose = "rows of tokens to e4m3 at the rows of their experts, one scale per group",
    .signature = R"(
      x            bf16 [T, H] rows
      pos_to_pair  i32 [P]                         values -1 .. T * num_topk - 1  # of moe_plan; -1: padding
      -> out       e4m3 [P, H] align 16
      -> out_sf    SF(1,num_per_channels) sf_layout
      param  num_topk int >= 1                     # K of moe_plan
      param  num_per_channels {32, 128} = 128
      param  round_sf bool = false
      param  sf_layout = row_major
      param  fill_padding bool = true              # zeros in padding, else it is not written
      need   H >= 1 on x "argument 'x' has no columns"
      need   round_sf if sf_layout = packed_ue8m0 on sf_layout
      |      "packed_ue8m0 scales are powers of two"
      limit  H <= 2147483647
      limit  num_topk <= 2147483647
      limit  T * num_topk <= 2130706431 on x "so many pairs are not supported"
    )",
    .launches = launches,
    .examples = R"(
      T=37 H=7168 P=96 num_topk=6; T=9 H=576 P=40 num_topk=2 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0
      T=5 H=320 P=17 num_topk=3 sf_layout=col_major_tma fill_padding=false
      T=7 H=256 P=24 num_topk=2 num_per_channels=32 x.strides=512,1)",
    .bench = R"(
      T=1 H=4096 P=48 num_topk=6; T=64 H=4096 P=2176 num_topk=6
      T=8192 H=4096 P=50944 num_topk=6; T=8192 H=7168 P=50944 num_topk=6 num_per_channels=32 round_sf=true sf_layout=packed_ue8m0)",
    // One row of eight is padding.
    .values = {{"pos_to_pair", [](const Case& c, int64_t row) {
                  return row % 8 == 7 ? -1 : row * 7919 % (c["T"] * c["num_topk"]);
                }}}};

}  // namespace tessera::kernels
