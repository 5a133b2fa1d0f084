#pragma once
// The scales that per_token_cast would write, without its codes.

#include "kernels/quant/per_token_cast.h"

namespace tessera::kernels {

/// Writes the scales of `per_token_cast(x, out, out_sf, options)`, bit for bit.
///
///   x        bf16|f32   [tokens, hidden]                             last stride 1, row stride free
///   out_sf   as sf_layout says (scale_layout.h), its padding included
///            [tokens, ceil(hidden / num_per_channels)]
///
/// Errors:  as per_token_cast.
/// Example: per_token_cast_with_sf_only(x, out_sf, {.num_per_channels = 128}, stream);
void per_token_cast_with_sf_only(const TensorView& x, const TensorView& out_sf,
                                 const PerTokenCastOptions& options, Stream stream);

const OpInfo& per_token_cast_with_sf_only_op();

}  // namespace tessera::kernels
