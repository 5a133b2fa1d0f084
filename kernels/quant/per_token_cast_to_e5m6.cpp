// per_token_cast_to_e5m6: casts rows to 12-bit floats with one scale per row.
//
// Method   one pass: load whole rows, amax, scale, encode. Each thread packs runs of eight codes
//          into three words, and shared memory arranges them for 16-byte stores. x is read once and
//          out written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, 1e-4) / 65024: see scale_factor.h; codes: see e5m6.h
// Tuned    not yet measured

#include <bit>

#include "kernels/quant/parts/e5m6.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

/// Short rows: one string of eight codes per thread, several rows per block. Otherwise f32 takes up
/// to four strings per thread if whole warps divide a row evenly, which compiles better; bf16 takes
/// seven, to have their loads in flight.
TokenTile row_tile(const TokenCastSpec& s) {
  const int64_t strings = s.hidden / e5m6::kCodes;
  for (int threads = 128; threads <= 1024 && s.in == DType::f32; threads += 32) {
    if (strings % threads == 0 && strings / threads <= 4) {
      return {1, s.hidden, threads, s.hidden, 1};
    }
  }
  const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(strings)));
  if (lanes > 128) return whole_row_tile(s.hidden, e5m6::kCodes);
  return {128 / lanes, lanes * e5m6::kCodes, 128, s.hidden, 1};
}

ir::Kernel build(const TokenCastSpec& s) {
  using namespace dsl;
  constexpr int64_t kCodes = e5m6::kCodes, kWords = e5m6::kWords;
  const TokenTile tile = row_tile(s);
  const int64_t strings = tile.cols / kCodes;  // of eight codes, in a row of the tile

  Builder k("per_token_cast_to_e5m6");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  auto out = k.output("out", DType::u32, {rows.tokens, s.hidden / kCodes * kWords});
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, 1);
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads);

  // load: eight neighbours in one thread
  auto x_frag = k.fragment(s.in, layout::split({tile.rows, tile.cols}, tile.threads, kCodes),
                           "x_frag");  // (rows, cols)
  k.copy(rows.x.tile({at.row, at.col}, {tile.rows, tile.cols}), x_frag);

  // amax per row
  auto amax = k.fragment(DType::f32, {tile.rows, 1}, "amax");  // (rows, 1)
  k.reduce_absmax(x_frag.reshape({tile.rows, 1, tile.cols}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, 1}, "inverse");  // (rows, 1)
  k.parallel({tile.rows, 1}, [&](Value r, Value g) {
    auto sf = scale_factor(k, kE5m6, amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf.store(at.row + r, g, sf);
  });

  // encode, pack and store
  auto x_strings = x_frag.reshape({tile.rows, strings, kCodes});
  auto row_words = k.shared(DType::u32, {tile.rows, strings * kWords}, "row_words");
  k.parallel({tile.rows, strings}, [&](Value r, Value n) {
    std::array<Value, kCodes> codes;
    const auto value = [&](size_t i) {
      return k.let("value", f32(x_strings(r, n, static_cast<int64_t>(i))) * inverse(r, 0));
    };
    for (size_t i = 0; i < codes.size(); i += 2) {
      const Value even = value(i), odd = value(i + 1);
      const auto pair = e5m6::encode(k, even, odd);
      codes[i] = pair[0];
      codes[i + 1] = pair[1];
    }
    const auto words = e5m6::pack(codes);
    for (size_t w = 0; w < words.size(); ++w) {
      row_words(r, n * kWords + static_cast<int64_t>(w)) = words[w];
    }
  });
  k.copy(row_words, out.tile({at.row, at.col / kCodes * kWords}, {tile.rows, strings * kWords}));
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, token_cast_spec(c), {.tensors = {{"out", retyped(c.given("out"), DType::u32)}}});
}

}  // namespace

const Op per_token_cast_to_e5m6_op{.name = "per_token_cast_to_e5m6",
                                   .family = "quant",
                                   .purpose = "rows to 12-bit floats with one scale per row",
                                   .signature = R"(
      x          bf16/f32 [T, H] rows
      -> out     e5m6 [T, H] align 16
      -> out_sf  SF(1,H) sf_layout
      param      sf_layout = row_major
      param      round_sf bool = false
      need       H % 8 = 0
      limit      H <= 24576 "rows of so many columns are not supported"   # their words in shared memory
      need       round_sf if sf_layout = packed_ue8m0 on sf_layout
      |          "packed_ue8m0 scales are powers of two"
    )",
                                   .launches = launches,
                                   .examples = R"(
      T=5 H=7168 x=bf16 round_sf=true; T=3 H=7168 x=f32 round_sf=true sf_layout=packed_ue8m0
      T=13 H=576 x=bf16 sf_layout=col_major_tma; T=9 H=40 x=f32)",
                                   .bench = R"(
      T=8001 H=7168 x=bf16 round_sf=true; T=8001 H=7168 x=f32 round_sf=true
      T=8001 H=7168 x=f32 round_sf=true sf_layout=packed_ue8m0; T=128 H=7168 x=bf16 round_sf=true)"};

}  // namespace tessera::kernels
