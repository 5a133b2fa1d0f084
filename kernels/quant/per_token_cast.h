#pragma once
// Rows to 8-bit or 4-bit floats with one scale per group of columns.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct PerTokenCastOptions {
  DType format = DType::e4m3;      // or e2m1
  int64_t num_per_channels = 128;  // columns that share a scale: 16, 32, 64, 128 or all of them
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;  // scales are rounded up to powers of two
};

/// Casts each row of `x` with one scale per group of columns: x ~ out * out_sf.
///
///   x        bf16|f32   [tokens, hidden]        last stride 1, row stride free
///   out      e4m3       [tokens, hidden]        contiguous; e2m1: i8 [tokens, hidden / 2], the even
///                                               column in the low nibble
///   out_sf   [tokens, ceil(hidden / num_per_channels)] as sf_layout says (scale_layout.h), its
///            padding included
///
/// A group's scale is max(amax, 1e-4) / 448 (e4m3) or max(amax, 6 * 2^-126) / 6 (e2m1). NaN does
/// not count into amax and becomes 0x7F or code 7; an infinite amax gives zeros.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees or outputs overlap;
///          kind unsupported for one scale per row of more than 65536 columns.
/// Example: per_token_cast(x, out, out_sf, {.num_per_channels = 128}, stream);
void per_token_cast(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                    const PerTokenCastOptions& options, Stream stream);

/// The scales of an x that is quantised already.
struct InputScales {
  TensorView sf;                           // one per block of x, as `layout` says
  int64_t block_rows = 0, block_cols = 0;  // rows and columns of x that share one
  SfLayout layout = SfLayout::row_major;
};

/// The same of an x of codes: each counts as code * scale of its block. The factor scale * inverse
/// is rounded once, then multiplied by the code.
///
///   x            e4m3   [tokens, hidden], or e2m1: i8 [tokens, hidden / 2]   rows any stride apart
///   x_scales.sf  [ceil(tokens / block_rows), ceil(hidden / block_cols)]      columns (row_major:
///                rows) may be further apart
///
/// block_cols is a multiple of 16, and divides num_per_channels (16, 32, 64 or 128) or is a
/// multiple of it.
///
/// Errors:  as above.
/// Example: per_token_cast(x, {.sf = x_sf, .block_rows = 128, .block_cols = 128}, out, out_sf,
///                         {.format = DType::e2m1, .num_per_channels = 32}, stream);
void per_token_cast(const TensorView& x, const InputScales& x_scales, const TensorView& out,
                    const TensorView& out_sf, const PerTokenCastOptions& options, Stream stream);

const OpInfo& per_token_cast_op();

}  // namespace tessera::kernels
