// channel_cast: casts columns of rows, gathered or in order, to e4m3 with one scale per 128 rows.
//
// Shapes   x [tokens, hidden], pos_to_token [positions], out [positions, hidden],
//          out_sf [ceil(positions / 128), hidden]
// Dtypes   x bf16|f32|e4m3, x_sf f32 [tokens, hidden / 128], out e4m3, out_sf f32
// Method   one pass, in registers. A thread holds some columns of neighbouring rows; it loads their
//          indices first, then all values. The threads of a column exchange maxima and factors
//          through shared memory. The bound is bytes / copy bandwidth.
// Maths    value = code * x_sf, rounded; scale and code: see scale_factor.h
// Tuned    H200: 4096 x 7168 take 24.5 us from bf16, 95 % of copy; 20.5 from e4m3 with 8 tokens per
//          thread (peer 20.1), 82 % of copy, 22.1 with 4. Gathered, with no_allocate and without: 18562
//          rows of bf16 113.3 and 126.3 us, 18551 of e4m3 122.3 and 119.2; with evict_first 134.8 and
//          127.5. Loads of e4m3 in order with no_allocate 20.5, with evict_first 20.6. H100: e4m3 in
//          order 24.6 us with 8 tokens per thread, 25.0 with 4, 26 in tiles of 64 columns; gathered
//          18551 rows take 136 us with 4 tokens, 145 with 8, 193 with 2, 143 in tiles of 64 columns.

#include "kernels/quant/parts/channel_cast.h"

#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/channel_tile.h"

namespace tessera::kernels {
namespace {

using Rows = ChannelCastSpec::Rows;

constexpr int64_t kRun = 128;       // rows per scale, and columns of x per x_sf
constexpr int64_t kPositions = 16;  // the number of positions is a multiple
constexpr int64_t kTokens = ChannelTile::kTokens;

/// 16-byte loads, and at most 128 registers of values. Gathered rows take fewer, because their loads
/// wait longer.
ChannelTile tile_of(DType in, bool in_order) {
  if (in == DType::f32) return {128, 16, 4};
  if (in == DType::e4m3) return {128, in_order ? 8 : 4, 16};
  return kBf16Tile;
}
/// Launch bound with registers for all loads of a gathered tile before the first use; ptxas would
/// allocate fewer.
int blocks_per_sm(DType in, bool in_order) {
  return in == DType::e4m3 && !in_order ? 3 : 0;
}

ir::Kernel build_channel_cast(const std::string& op, const ChannelCastSpec& s) {
  using namespace dsl;
  const bool in_order = s.rows == Rows::in_order;
  const ChannelTile tile = tile_of(s.in, in_order);

  Builder k(op);
  auto positions = k.dim("positions", {.multiple_of = in_order ? kTokens : kPositions});
  std::optional<Ref> x, x_sf, pos_to_token;
  Value tokens = positions;
  if (s.rows == Rows::gathered) {
    tokens = k.dim("tokens");
    pos_to_token = k.input("pos_to_token", DType::i32, {positions}, {.align = s.index_align});
  }
  if (s.rows != Rows::none) {
    x = k.input("x", s.in, {tokens, s.hidden}, {.align = s.align});
    if (s.in == DType::e4m3) {
      x_sf = k.input("x_sf", DType::f32, {tokens, s.hidden / kRun}, {.align = 4});
    }
  }
  auto out = k.output("out", DType::e4m3, {positions, s.hidden});
  auto out_sf = k.output("out_sf", DType::f32, {ceil_div(positions, kRun), s.hidden});
  const TileOrigin at = launch_tiles(k, positions, kTokens, s.hidden, tile.cols, tile.threads(),
                                     blocks_per_sm(s.in, in_order));
  if (in_order) k.assume(at.row + (kTokens - 1) < positions);  // a multiple of kTokens

  // load
  auto x_frag = k.fragment(s.in, tile.values(), "x_frag");  // (tokens, cols)
  std::optional<Ref> scale;                                 // (tokens)
  if (s.in == DType::e4m3) scale = k.fragment(DType::f32, tile.tokens(), "scale");
  const auto hint = !in_order && s.in == DType::bf16 ? CacheHint::no_allocate : CacheHint::none;
  const auto load = [&](const auto& row_of) {
    k.parallel({kTokens, tile.cols},
               [&](Value t, Value c) { x_frag(t, c) = x->cached(hint)(row_of(t), at.col + c); });
    if (x_sf) {
      k.parallel({kTokens}, [&](Value t) { (*scale)(t) = (*x_sf)(row_of(t), at.col / kRun); });
    }
  };
  if (in_order) load([&](const Value& t) { return at.row + t; });
  if (s.rows == Rows::gathered) {                                 // 0 if the index names no row
    auto index = k.fragment(DType::i32, tile.tokens(), "index");  // (tokens)
    k.copy(pos_to_token->tile({at.row}, {kTokens}), index, {.outside = -1});
    k.parallel({kTokens},
               [&](Value t) { k.report_unless(index(t) < tokens, out_of_range("pos_to_token")); });
    load([&](const Value& t) { return Value(index(t)); });
  }
  if (s.rows == Rows::none) {
    k.parallel({kTokens, tile.cols}, [&](Value t, Value c) { x_frag(t, c) = cast(s.in, 0.0f); });
    if (scale) k.fill(*scale, 0.0f);
  }

  // scale, cast and store
  if (s.in != DType::e4m3) {
    cast_columns(k, tile, kRun, s.round_sf, at, x_frag, out_sf, out, /*transposed=*/false);
    return k.finish();
  }
  auto v = k.fragment(DType::f32, tile.values(), "v");  // (tokens, cols)
  k.parallel({kTokens, tile.cols},
             [&](Value t, Value c) { v(t, c) = f32(x_frag(t, c)) * (*scale)(t); });
  cast_columns(k, tile, kRun, s.round_sf, at, v, out_sf, out, /*transposed=*/false);
  return k.finish();
}

}  // namespace

void add_channel_cast(const Call& c, Launches& go) {
  ChannelCastSpec s;
  const bool gathers = c.has("pos_to_token");
  s.in = c.dtype("x");
  s.rows = !gathers ? Rows::in_order : c["T"] > 0 ? Rows::gathered : Rows::none;
  s.round_sf = c.flag("round_sf");
  s.index_align = gathers ? static_cast<uint8_t>(c.align({"pos_to_token"})) : 0;
  s.hidden = c.i32("H");
  s.align = c.align({"x"});
  const std::string op(c.op().name);
  go.add([&](const ChannelCastSpec& spec) { return build_channel_cast(op, spec); }, s);
}

}  // namespace tessera::kernels
