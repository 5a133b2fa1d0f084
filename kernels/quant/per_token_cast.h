#pragma once
// Rows to 8-bit floats with one scale per group of columns.

#include "kernels/op.h"

namespace tessera::kernels {

struct PerTokenCastOptions {
  int64_t num_per_channels = 128;  // columns that share a scale: 16, 32, 64, 128 or all of them
  bool round_sf = false;           // scales are rounded up to powers of two
};

/// Casts each row of `x` to e4m3 with one scale per group of columns: x ~ out * out_sf.
///
///   x        bf16|f32   [tokens, hidden]                             last stride 1, row stride free
///   out      e4m3       [tokens, hidden]                             contiguous
///   out_sf   f32        [tokens, ceil(hidden / num_per_channels)]    contiguous
///
/// A group's scale is max(amax, 1e-4) / 448. NaN does not count into amax and becomes 0x7F; an
/// infinite amax gives zeros.
///
/// Errors:  ArgumentError if a shape, dtype, stride, option or device disagrees or outputs overlap;
///          UnsupportedError for one scale per row of more than 65536 columns.
/// Example: per_token_cast(x, out, out_sf, {.num_per_channels = 128}, stream);
void per_token_cast(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                    const PerTokenCastOptions& options, Stream stream = nullptr);

const OpInfo& per_token_cast_op();

}  // namespace tessera::kernels
