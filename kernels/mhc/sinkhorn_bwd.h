#pragma once
// The gradient of the Sinkhorn projection.

#include "kernels/mhc/sinkhorn_fwd.h"

namespace tessera::kernels {

/// Gradient of sinkhorn_fwd with respect to its logits. The normalisations are computed again from
/// `x` in the order of the forward op, then unrolled backward: with y = v / (sum v + eps) along an
/// axis, dv = (dy - sum(dy * y)) / (sum v + eps).
///
///   grad_out   f32   [tokens, streams, streams]   contiguous
///   x          f32   [tokens, streams, streams]   contiguous, the logits
///   grad_x     f32   [tokens, streams, streams]   contiguous
///
/// Tokens may have several dimensions.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, repeat is not in 1 .. 45
///          or grad_x overlaps an input;
///          kind unsupported beyond 4 streams.
/// Example: sinkhorn_bwd(grad_out, x, grad_x, {.repeat = 10}, stream);
void sinkhorn_bwd(const TensorView& grad_out, const TensorView& x, const TensorView& grad_x,
                  const SinkhornOptions& options, Stream stream);

const OpInfo& sinkhorn_bwd_op();

}  // namespace tessera::kernels
