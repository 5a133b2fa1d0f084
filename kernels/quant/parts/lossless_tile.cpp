// Blocks that fit in a register tile. Table look-up turns a word of eight e2m1 codes into two words
// of four e4m3 codes: the e2m1 magnitudes 0 to 7 are the selectors of a byte permutation, and its
// table holds their e4m3 codes for the block's exponent.

#include <bit>

#include "dsl/builder.h"
#include "kernels/quant/parts/byte_perm.h"
#include "kernels/quant/parts/lossless.h"
#include "kernels/quant/parts/token_grid.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kVectors = 4;  // of 16 codes per thread: 8 bytes of x, 16 bytes of out
constexpr int64_t kCodesOfVector = 16, kCodesOfThread = kVectors * kCodesOfVector;
constexpr int64_t kMostThreads = 1024;

struct Tile {
  int64_t rows, cols;
  int64_t threads() const { return rows * cols / kCodesOfThread; }
};

Tile pick_tile(const LosslessSpec& s) {
  const int64_t rows = std::max(s.out_rows, 16), least = std::max(s.out_cols, 128);
  int64_t cols = std::max<int64_t>(least, 8192 / rows);
  while (cols > least && num_blocks(s.hidden, cols) * cols * 8 > s.hidden * int64_t{9}) cols /= 2;
  return {rows, cols};
}

/// (rows, words of four codes): a thread holds four vectors of different rows.
layout::Layout word_tile(const Tile& t) {
  const int64_t col_threads = t.cols / kCodesOfVector, row_threads = t.rows / kVectors;
  return layout::Layout({t.rows, t.cols / 4}, {{0, 1, row_threads, col_threads, 0},
                                               {0, row_threads, kVectors, 0, 4},
                                               {1, 1, 4, 0, 1},
                                               {1, 4, col_threads, 1, 0}});
}

/// Converts the four e2m1 codes in the low half of `four` to e4m3. `base` is the e4m3 code of 1/2
/// times the power of two to multiply by, 8 to 96; doubling the value adds 8.
dsl::Value four_codes(dsl::Builder& k, const dsl::Value& four, const dsl::Value& base) {
  using namespace dsl;
  auto low = base * 0x01010100 + 0x0C080000;   // 0, 1/2, 1, 3/2
  auto high = base * 0x01010101 + 0x1C181410;  // 2, 3, 4, 6
  auto magnitudes = byte_perm(k, low, high, four & 0x7777);
  // Bytes 0 and 1 hold the first two codes, bytes 2 and 3 the others: the sign bits are 3 and 7.
  auto twice = byte_perm(k, four, u32(0), u32(0x1100));
  return magnitudes | ((twice << 4) & 0x00800080) | (twice & 0x80008000);
}

}  // namespace

bool fits_tile(const LosslessSpec& s) {
  const auto is_power = [](int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); };
  return s.align >= 8 && is_power(s.in_rows) && is_power(s.out_rows) && s.out_rows <= 128 &&
         s.in_cols >= kCodesOfVector && s.out_cols <= 4096 &&
         pick_tile(s).threads() <= kMostThreads;
}

ir::Kernel build_lossless_tile(const LosslessSpec& s) {
  using namespace dsl;
  const Tile tile = pick_tile(s);
  const int64_t in_rows = tile.rows / s.in_rows, in_cols = tile.cols / s.in_cols;  // blocks of x
  const int64_t out_rows = tile.rows / s.out_rows, out_cols = tile.cols / s.out_cols;
  const int64_t rows_together = in_rows / out_rows, cols_together = in_cols / out_cols;
  const int64_t words = tile.cols / 4;  // of four codes

  Builder k("per_block_cast_lossless");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::u32, {tokens, s.hidden / 8}, {.align = s.align});
  const Value x_sf_rows = ceil_div(tokens, s.in_rows);
  const int64_t x_sf_cols = num_blocks(s.hidden, s.in_cols);
  const ScaleReader x_sf(k, "x_sf", s.x_sf_layout, x_sf_rows, x_sf_cols);
  auto out = k.output("out", DType::u32, {tokens, s.hidden / 4});
  const ScaleWriter out_sf(k, s.sf_layout, ceil_div(tokens, s.out_rows),
                           num_blocks(s.hidden, s.out_cols));
  const int64_t word_cols = ScaleWriter::cols_together(s.sf_layout) * s.out_cols;
  const TileOrigin at = launch_tiles(k, ceil_div(out_sf.rows(), out_rows), 1,
                                     num_blocks(s.hidden, word_cols) * word_cols, tile.cols,
                                     static_cast<int>(tile.threads()));

  // load
  auto first_row = k.let("first_row", at.row * tile.rows);
  auto first_word = k.let("first_word", at.col_tile * (words / 2));        // of eight codes
  auto x_frag = k.fragment(DType::u32, {tile.rows, words / 2}, "x_frag");  // (rows, words of eight)
  k.copy(x.tile({first_row, first_word}, {tile.rows, words / 2}), x_frag);
  auto exponents = k.fragment(DType::i32, {in_rows, in_cols}, "exponents");  // (blocks of x)
  k.parallel({in_rows, in_cols}, [&](Value r, Value c) {
    auto row = at.row * in_rows + r, col = at.col_tile * in_cols + c;
    exponents(r, c) = input_exponent(k, s, x_sf, row, col, row < x_sf_rows && col < x_sf_cols);
  });

  // the largest exponent per block of out, its scale
  auto of_rows = k.fragment(DType::i32, {out_rows, rows_together, out_cols}, "of_rows");
  k.reduce_max(exponents.reshape({out_rows, rows_together, out_cols, cols_together}), of_rows,
               Axis(3));
  auto most = k.fragment(DType::i32, {out_rows, out_cols}, "most");  // (blocks of out)
  k.reduce_max(of_rows, most, Axis(1));
  k.parallel({out_rows, out_cols}, [&](Value r, Value c) {
    const ScaleFactor sf = output_scale(k, most(r, c));
    out_sf.store(at.row * out_rows + r, at.col_tile * out_cols + c, sf);
  });

  // The difference to each block's exponent goes into the codes.
  k.parallel({in_rows, in_cols}, [&](Value r, Value c) {
    exponents(r, c) =
        exponents(r, c) - max(most(r / rows_together, c / cols_together) - kMostShift, 0);
  });
  k.parallel({tile.rows, words / 2}, [&](Value r, Value w) {
    auto is_zero = (x_frag(r, w) & 0x77777777) == 0;
    k.report_unless(exponents(r / s.in_rows, w / (s.in_cols / 8)) >= kLeastShift || is_zero,
                    kTooFarApart);
  });
  auto codes = k.fragment(DType::u32, word_tile(tile), "codes");  // (rows, words of four)
  k.parallel({tile.rows, words}, [&](Value r, Value w) {
    auto shift = max(exponents(r / s.in_rows, w / (s.in_cols / 4)), kLeastShift);
    auto base = u32(shift - (kLeastShift - 1)) * 8;
    codes(r, w) = four_codes(k, x_frag(r, w / 2) >> (u32(w % 2) * 16), base);
  });
  k.copy(codes, out.tile({first_row, first_word * 2}, {tile.rows, words}));
  return k.finish();
}

}  // namespace tessera::kernels
