#pragma once
// The codes of per_token_cast for scales that are given.

#include "kernels/op.h"

namespace tessera::kernels {

/// Casts each row of `x` in groups of `num_per_channels` columns: code = cast(x * (1 / sf)).
///
///   x        bf16|f32   [tokens, hidden]                             last stride 1, row stride free
///   sf       f32        [tokens, ceil(hidden / num_per_channels)]    last stride 1, row stride free
///   out      `format`   [tokens, hidden]   contiguous; e2m1: i8 [tokens, hidden / 2], the even
///                                          column in the low nibble
///
/// The inverse is one IEEE division; a scale of 0 gives infinities and NaN as computed.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees or outputs overlap;
///          kind unsupported for one scale per row of more than 65536 columns.
/// Example: per_token_cast_with_precomputed_sf(x, sf, out, DType::e4m3, 128, stream);
void per_token_cast_with_precomputed_sf(const TensorView& x, const TensorView& sf,
                                        const TensorView& out, DType format,
                                        int64_t num_per_channels, Stream stream);

const OpInfo& per_token_cast_with_precomputed_sf_op();

}  // namespace tessera::kernels
