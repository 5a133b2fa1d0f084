#pragma once
// Rows to 12-bit floats with one scale per row.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct PerTokenCastToE5m6Options {
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;  // scales are rounded up to powers of two
};

/// Casts each row of `x` with one scale: x ~ out * out_sf.
///
///   x        bf16|f32   [tokens, hidden]           last stride 1, row stride free; hidden % 8 = 0
///   out      u8         [tokens, hidden * 3 / 2]   contiguous; e5m6 codes, see e5m6.h
///   out_sf   as sf_layout says (scale_layout.h), its padding included
///            [tokens, 1]
///
/// The scale is max(amax, 1e-4) / 65024. NaN does not count into amax and becomes 0x7FF; an
/// infinite amax gives zeros.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees or outputs overlap;
///          kind unsupported for more than 24576 columns.
/// Example: per_token_cast_to_e5m6(x, out, out_sf, {.round_sf = true}, stream);
void per_token_cast_to_e5m6(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                            const PerTokenCastToE5m6Options& options, Stream stream);

const OpInfo& per_token_cast_to_e5m6_op();

}  // namespace tessera::kernels
