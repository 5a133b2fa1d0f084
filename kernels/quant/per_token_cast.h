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
/// Errors:  ArgumentError if a shape, dtype, stride, option or device disagrees or outputs overlap;
///          UnsupportedError for one scale per row of more than 65536 columns.
/// Example: per_token_cast(x, out, out_sf, {.num_per_channels = 128}, stream);
void per_token_cast(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                    const PerTokenCastOptions& options, Stream stream = nullptr);

const OpInfo& per_token_cast_op();

}  // namespace tessera::kernels
