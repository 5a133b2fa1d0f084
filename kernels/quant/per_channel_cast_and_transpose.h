#pragma once
// Columns to 8-bit floats with one scale per run of tokens, written transposed.

#include "kernels/op.h"

namespace tessera::kernels {

struct PerChannelCastOptions {
  int64_t num_per_tokens = 128;  // tokens of a column that share a scale: 32 or 128
  bool round_sf = false;         // scales are rounded up to powers of two
};

/// Casts each column of `x` in runs of `num_per_tokens` tokens and transposes: x ~ out^T * out_sf.
///
///   x        bf16   [tokens, hidden]   contiguous; tokens % 128 = 0, hidden % 64 = 0
///   out      e4m3   [hidden, tokens]   contiguous
///   out_sf   f32    [tokens / num_per_tokens, hidden]   contiguous, not transposed
///
/// A run's scale is max(amax, 1e-4) / 448. NaN does not count into amax and becomes 0x7F; an
/// infinite amax gives zeros.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees or outputs overlap.
/// Example: per_channel_cast_and_transpose(x, out, out_sf, {.num_per_tokens = 32}, stream);
void per_channel_cast_and_transpose(const TensorView& x, const TensorView& out,
                                    const TensorView& out_sf, const PerChannelCastOptions& options,
                                    Stream stream);

const OpInfo& per_channel_cast_and_transpose_op();

}  // namespace tessera::kernels
