// Blocks of any size: a warp loads the scales of its block of `out`, then its codes, one per lane.

#include "dsl/builder.h"
#include "kernels/quant/parts/lossless.h"
#include "kernels/quant/parts/token_grid.h"

namespace tessera::kernels {
namespace {

/// The value of an e2m1 code in the low four bits.
dsl::Value value_of_code(const dsl::Value& code) {
  using namespace dsl;
  // The exponent bias is 126 less than that of f32. The product also normalises 1/2.
  auto magnitude = reinterpret(DType::f32, (code & 7) << 22) * 0x1p126f;
  return select((code & 8) != 0, -magnitude, magnitude);
}

}  // namespace

ir::Kernel build_lossless_block(const LosslessSpec& s) {
  using namespace dsl;
  constexpr int64_t kLanes = 32;
  const int64_t out_cols = num_blocks(s.hidden, s.out_cols);
  const int64_t together = ScaleWriter::cols_together(s.sf_layout);

  Builder k("per_block_cast_lossless_any");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::u8, {tokens, s.hidden / 2}, {.align = s.align});  // pairs of codes
  const ScaleReader x_sf(k, "x_sf", s.x_sf_layout, ceil_div(tokens, s.in_rows),
                         num_blocks(s.hidden, s.in_cols));
  auto out = k.output("out", DType::e4m3, {tokens, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, ceil_div(tokens, s.out_rows), out_cols);
  const TileOrigin at = launch_tiles(k, out_sf.rows(), 1, num_blocks(out_cols, together) * together,
                                     1, static_cast<int>(kLanes));

  // The part of the block inside the matrix, in 64 bits: padding may begin beyond 2^31.
  const auto inside = [&](const Value& block, int64_t size, const Value& extent) {
    return i32(max(min(i64(extent) - i64(block) * size, i64(size)), i64(0)));
  };
  auto first_row = k.let("first_row", i64(at.row) * int64_t{s.out_rows});
  auto first_col = k.let("first_col", i64(at.col) * int64_t{s.out_cols});
  auto rows = k.let("rows", inside(at.row, s.out_rows, tokens));
  auto cols = k.let("cols", i32(max(min(int64_t{s.hidden} - first_col, i64(s.out_cols)), i64(0))));
  const auto for_each = [&](const Value& row_count, const Value& col_count, const auto& body) {
    k.serial(0, row_count, [&](Value r) {
      k.serial(0, ceil_div(col_count, kLanes), [&](Value j) {
        auto c = k.let("c", j * kLanes + k.lane());
        k.if_(c < col_count, [&] { body(r, c); });
      });
    });
  };

  // the largest exponent
  auto largest = k.var(DType::i32, 0, "largest");
  for_each(ceil_div(rows, s.in_rows), ceil_div(cols, s.in_cols), [&](Value r, Value c) {
    auto row = first_row / int64_t{s.in_rows} + i64(r),
         col = first_col / int64_t{s.in_cols} + i64(c);
    largest = max(largest, input_exponent(k, s, x_sf, row, col, r >= 0));
  });
  auto most = k.let("most", k.warp_max(largest));
  const ScaleFactor sf = output_scale(k, most);
  k.if_(k.lane() == 0, [&] { out_sf.store(at.row, at.col, sf); });

  // codes
  for_each(rows, cols, [&](Value r, Value c) {
    auto row = k.let("row", first_row + i64(r)), col = k.let("col", first_col + i64(c));
    auto bits =
        reinterpret(DType::u32, x_sf.load(row / int64_t{s.in_rows}, col / int64_t{s.in_cols}));
    auto shift = k.let("shift", i32(bits >> 23 & 255) - i32(sf.exponent));
    auto value = k.let("value", value_of_code(u32(x(row, col / 2)) >> (u32(c % 2) * 4)));
    k.report_unless(shift >= kLeastShift || value == 0.0f, kTooFarApart);
    auto factor = reinterpret(DType::f32, u32(max(shift, kLeastShift) + 127) << 23);
    out(row, col) = cast(DType::e4m3, value * factor);
  });
  return k.finish();
}

}  // namespace tessera::kernels
