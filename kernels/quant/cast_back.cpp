// cast_back: dequantises e4m3 or e2m1 codes to bf16 or f32, with one scale per block of the matrix.
//
// Dtypes   x e4m3|e2m1 (two per byte), x_sf f32 or exponents of powers of two, out bf16|f32
// Method   one pass: load codes, multiply each by the scale of its block, store. The bound is bytes
//          / copy bandwidth; scales come from the caches.
// Maths    out = round(code * scale), one f32 multiply
// Tuned    H200; the builder is in dequantise.cpp

#include "kernels/quant/parts/dequantise.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {

const Op cast_back_op{
    .name = "cast_back",
    .family = "quant",
    .purpose = "8-bit or 4-bit floats with one scale per block back to bf16 or f32",
    .signature = R"(
      x           e4m3/e2m1 [T, H]
      x_sf        SF(x_block_size) x_sf_layout
      -> out      out_dtype [T, H] align 16
      param       x_block_size tuple
      param       out_dtype {bf16, f32} = bf16
      param       x_sf_layout = row_major
      let         br, bc = x_block_size
      need        H % 64 = 0
      limit       H <= 2147483647
    )",
    .launches = add_dequantise,
    .examples = R"(
      T=130 H=576 x=e4m3 x_block_size=128,128; T=130 H=576 x=e4m3 x_block_size=128,1
      T=13 H=2048 x=e4m3 x_block_size=1,128 out_dtype=f32 x_sf_layout=packed_ue8m0
      T=33 H=576 x=e4m3 x_block_size=32,32 out_dtype=f32 x_sf_layout=col_major_tma
      T=9 H=640 x=e2m1 x_block_size=1,32 x_sf_layout=packed_ue8m0)",
    .bench = R"(
      T=8001 H=7168 x=e4m3 x_block_size=128,128; T=8001 H=7168 x=e4m3 x_block_size=128,1)"};

}  // namespace tessera::kernels
