#pragma once
// The residual streams behind a sub-layer.

#include "kernels/op.h"

namespace tessera::kernels {

/// Writes the new residual streams: out[t, o, h] = post_mix[t, o] * x[t, h] + sum over i of
/// comb_mix[t, i, o] * residual[t, i, h], in f32 and rounded once. Order: the rounded product of
/// stream 0, then fma of the sub-layer's output, then fma of the streams 1, 2, ...
///
///   x          bf16   [tokens, hidden]             contiguous, the sub-layer's output
///   residual   bf16   [tokens, streams, hidden]    contiguous
///   post_mix   f32    [tokens, streams]            contiguous
///   comb_mix   f32    [tokens, streams, streams]   contiguous, rows are the streams read
///   out        bf16   [tokens, streams, hidden]    contiguous
///
/// Tokens may have several dimensions, the same in every tensor.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or out overlaps an input;
///          kind unsupported beyond 8 streams.
/// Example: post_fwd(x, residual, post_mix, comb_mix, out, stream);
void post_fwd(const TensorView& x, const TensorView& residual, const TensorView& post_mix,
              const TensorView& comb_mix, const TensorView& out, Stream stream);

const OpInfo& post_fwd_op();

}  // namespace tessera::kernels
