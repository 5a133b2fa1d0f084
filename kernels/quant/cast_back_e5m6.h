#pragma once
// 12-bit floats back to bf16 or f32.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct CastBackE5m6Options {
  int64_t block_rows = 1, block_cols = 0;  // rows and columns that share a scale; 0: whole rows
  SfLayout x_sf_layout = SfLayout::row_major;
};

/// Writes out = x * x_sf, one f32 multiply, rounded to the dtype of `out`.
///
///   x      u8         [tokens, hidden * 3 / 2]   contiguous, at a multiple of 4 bytes; e5m6 codes,
///                                                see e5m6.h
///   x_sf   as x_sf_layout says (scale_layout.h), columns (row_major: rows) may be further apart
///          [ceil(tokens / block_rows), ceil(hidden / block_cols)]
///   out    bf16|f32   [tokens, hidden]           contiguous; hidden % 8 = 0
///
/// Codes are the upper 12 bits of IEEE halves: NaN stays NaN, infinity infinity. An exponent byte b
/// stands for the float with bits b << 23.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees.
/// Example: cast_back_e5m6(x, x_sf, out, {}, stream);
void cast_back_e5m6(const TensorView& x, const TensorView& x_sf, const TensorView& out,
                    const CastBackE5m6Options& options, Stream stream);

const OpInfo& cast_back_e5m6_op();

}  // namespace tessera::kernels
