#pragma once
// Quantised matrices back to floats, one scale per block.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct CastBackOptions {
  int64_t block_rows = 1, block_cols = 128;  // rows and columns that share a scale
  SfLayout x_sf_layout = SfLayout::row_major;
};

/// Writes out = x * x_sf, one f32 multiply, rounded to the dtype of `out`.
///
///   x      e4m3       [tokens, hidden]   contiguous; or e2m1: i8 [tokens, hidden / 2]
///   x_sf   as x_sf_layout says (scale_layout.h), columns (row_major: rows) may be further apart
///          [ceil(tokens / block_rows), ceil(hidden / block_cols)]
///   out    bf16|f32   [tokens, hidden]   contiguous
///
/// NaN stays NaN. An exponent byte b stands for the float with bits b << 23.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees, or hidden is no
///          multiple of 64.
/// Example: cast_back(x, x_sf, out, {.block_rows = 128, .block_cols = 128}, stream);
void cast_back(const TensorView& x, const TensorView& x_sf, const TensorView& out,
               const CastBackOptions& options, Stream stream);

const OpInfo& cast_back_op();

}  // namespace tessera::kernels
