// per_token_cast_back: dequantises e4m3 or e2m1 codes to bf16 or f32, with one scale per group of
// columns.
//
// Dtypes   x e4m3|e2m1 (two per byte), x_sf f32 or exponents of powers of two, out bf16|f32
// Method   cast_back with blocks of one row
// Maths    out = round(code * scale), one f32 multiply
// Tuned    H200; the builder is in dequantise.cpp

#include "kernels/quant/parts/dequantise.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {

const Op per_token_cast_back_op{
    .name = "per_token_cast_back",
    .family = "quant",
    .purpose = "8-bit or 4-bit floats with one scale per group of columns back to bf16 or f32",
    .signature = R"(
      x           e4m3/e2m1 [T, H]
      x_sf        SF(1,num_per_channels) x_sf_layout
      -> out      out_dtype [T, H] align 16
      param       num_per_channels int 1..H
      param       out_dtype {bf16, f32} = bf16
      param       x_sf_layout = row_major
      let         br = 1
      let         bc = num_per_channels
      need        H % 64 = 0
      limit       H <= 2147483647
    )",
    .launches = add_dequantise,
    .examples = R"(
      T=13 H=576 x=e4m3 num_per_channels=128
      T=37 H=7168 x=e4m3 num_per_channels=128 out_dtype=f32 x_sf_layout=packed_ue8m0
      T=7 H=2048 x=e4m3 num_per_channels=32 x_sf_layout=col_major_tma
      T=3 H=576 x=e4m3 num_per_channels=576 out_dtype=f32
      T=9 H=640 x=e2m1 num_per_channels=128 out_dtype=f32)",
    .bench = R"(
      T=8001 H=7168 x=e4m3 num_per_channels=128 out_dtype=f32
      T=8001 H=7168 x=e4m3 num_per_channels=7168 out_dtype=f32
      T=8001 H=7168 x=e2m1 num_per_channels=128 out_dtype=f32
      T=8001 H=7168 x=e2m1 num_per_channels=7168 out_dtype=f32
      T=8001 H=7168 x=e4m3 num_per_channels=128)"};

}  // namespace tessera::kernels
