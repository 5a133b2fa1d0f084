#pragma once
// The input of a sub-layer: the residual streams of each token, mixed into one row.

#include "kernels/op.h"

namespace tessera::kernels {

/// Writes out[t, h] = sum over i of mix[t, i] * x[t, i, h]: an fma chain in f32 over ascending i
/// from +0, rounded once.
///
///   x     bf16   [tokens, streams, hidden]   contiguous
///   mix   f32    [tokens, streams]           contiguous
///   out   bf16   [tokens, hidden]            contiguous
///
/// Tokens may have several dimensions, the same in every tensor.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or out overlaps an input;
///          kind unsupported beyond 16 streams.
/// Example: pre_apply_mix_fwd(x, mix, out, stream);
void pre_apply_mix_fwd(const TensorView& x, const TensorView& mix, const TensorView& out,
                       Stream stream);

const OpInfo& pre_apply_mix_fwd_op();

}  // namespace tessera::kernels
