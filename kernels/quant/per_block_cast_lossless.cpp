// per_block_cast_lossless: converts e2m1 in small blocks to e4m3 in larger blocks, exactly.
//
// Method   one pass: a thread block loads the codes and exponents of its blocks, takes the largest
//          exponent of each (shuffles, then shared memory) and moves the differences into the codes
//          by table look-up (lossless_tile.cpp). Blocks that fit no tile take one warp each
//          (lossless_block.cpp). x is read once and out is written once, so the bound is bytes /
//          copy bandwidth.
// Maths    exponent of out = max(largest exponent of x - 6, 0), code = code * 2^difference, exact for
//          differences of -5 and more
// Tuned    8001 x 7168 take 26 to 33 us on an H200 (peer 90), 34 to 40 on an H100, 83 to 96 % of copy.
//          The slowest, to blocks of 128 x 128 with f32 scales, takes 40.1 on the H100; 2 and 8 vectors
//          per thread 43.2 and 42.9, loads past L1 40.6 (but 32.3 instead of 33.8 with packed scales),
//          evict_first loads and stores 41.0 and 40.9.

#include <algorithm>
#include <bit>

#include "kernels/quant/parts/lossless.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

void check(const Call& c) {
  const auto need_power = [&](const char* param, int64_t cols) {
    c.need(std::has_single_bit(static_cast<uint64_t>(cols)), param,
           "the columns of '" + std::string(param) + "' are no power of two", "1, 2, 4, 8, ...",
           std::to_string(cols));
  };
  need_power("x_block_size", c["bc"]);
  need_power("out_block_size", c["out_bc"]);
}

void launches(const Call& c, Launches& go) {
  LosslessSpec s;
  s.x_sf_layout = sf_layout_of(c.params(), "x_sf_layout");
  s.sf_layout = sf_layout_of(c.params(), "sf_layout");
  s.align = static_cast<int16_t>(c.align({"x"}));
  s.hidden = c.i32("H");
  s.in_rows = c.i32("br");
  s.in_cols = c.i32("bc");
  s.out_rows = c.i32("out_br");
  s.out_cols = c.i32("out_bc");
  const auto words = [&](const char* name, DType dtype) -> Args::Tensor {
    return {name, retyped(c.given(name), dtype)};
  };
  if (fits_tile(s)) {
    go.add(build_lossless_tile, s, {.tensors = {words("x", DType::u32), words("out", DType::u32)}},
           "tile");
  } else {
    go.add(build_lossless_block, s, {.tensors = {words("x", DType::u8)}}, "block");
  }
}

/// Scales of an example: powers of two, at most 2^7 apart.
int64_t scale_of_example(const Case& c, int64_t i) {
  const auto exponent = [](int64_t n) { return 120 + n * 5 % 8; };
  if (sf_layout_of(c.params(), "x_sf_layout") != SfLayout::packed_ue8m0) return exponent(i) << 23;
  return exponent(i) | exponent(i + 1) << 8 | exponent(i + 2) << 16 | exponent(i + 3) << 24;
}

}  // namespace

const Op per_block_cast_lossless_op{
    .name = "per_block_cast_lossless",
    .family = "quant",
    .purpose = "4-bit floats in small blocks to 8-bit floats in larger ones, exactly",
    .signature = R"(
      x          e2m1 [T, H]
      x_sf       SF(x_block_size) x_sf_layout     # powers of two
      -> out     e4m3 [T, H] align 16
      -> out_sf  SF(out_block_size) sf_layout
      param      x_block_size, out_block_size tuple
      param      x_sf_layout, sf_layout = row_major
      param      format {e4m3} = e4m3
      let        br, bc = x_block_size
      let        out_br, out_bc = out_block_size
      need       H % 32 = 0
      need       out_br % br = 0 and out_bc % bc = 0 on out_block_size
      |          "'out_block_size' is no multiple of 'x_block_size'"
      limit      H <= 2147483647
    )",
    .launches = launches,
    .check = check,
    .check_values = require_lossless_scales,
    .examples = R"(
      T=37 H=7168 x_block_size=1,32 out_block_size=1,128
      T=37 H=576 x_block_size=1,32 out_block_size=1,128 x_sf_layout=packed_ue8m0 sf_layout=packed_ue8m0
      T=45 H=1024 x_block_size=1,32 out_block_size=32,32 x_sf_layout=packed_ue8m0
      T=130 H=576 x_block_size=1,32 out_block_size=128,128 x_sf_layout=col_major_tma sf_layout=col_major_tma
      T=130 H=1024 x_block_size=32,32 out_block_size=128,128 x_sf_layout=packed_ue8m0
      T=13 H=96 x_block_size=3,8 out_block_size=6,64 sf_layout=packed_ue8m0)",
    .bench = R"(
      T=8001 H=7168 x_block_size=1,32 out_block_size=1,128
      T=8001 H=7168 x_block_size=1,32 out_block_size=128,128
      T=8001 H=7168 x_block_size=1,32 out_block_size=1,128 x_sf_layout=packed_ue8m0
      T=8001 H=7168 x_block_size=1,32 out_block_size=128,128 x_sf_layout=packed_ue8m0
      T=1 H=7168 x_block_size=1,32 out_block_size=1,128
      T=128 H=7168 x_block_size=1,32 out_block_size=1,128)",
    .values = {{"x_sf", scale_of_example}}};

}  // namespace tessera::kernels
