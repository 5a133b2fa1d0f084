#pragma once
// The way back from per_token_cast.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct PerTokenCastBackOptions {
  int64_t num_per_channels = 128;  // columns that share a scale, 1 to all of them
  SfLayout x_sf_layout = SfLayout::row_major;
};

/// cast_back with one scale per row and group of columns.
///
///   x      e4m3       [tokens, hidden]   contiguous; or e2m1: i8 [tokens, hidden / 2]
///   x_sf   as x_sf_layout says (scale_layout.h), columns (row_major: rows) may be further apart
///          [tokens, ceil(hidden / num_per_channels)]
///   out    bf16|f32   [tokens, hidden]   contiguous
///
/// Errors:  as cast_back.
/// Example: per_token_cast_back(x, x_sf, out, {.num_per_channels = 128}, stream);
void per_token_cast_back(const TensorView& x, const TensorView& x_sf, const TensorView& out,
                         const PerTokenCastBackOptions& options, Stream stream);

const OpInfo& per_token_cast_back_op();

}  // namespace tessera::kernels
