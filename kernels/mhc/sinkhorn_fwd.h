#pragma once
// Logits of the residual mix to nearly doubly stochastic matrices.

#include "kernels/op.h"

namespace tessera::kernels {

struct SinkhornOptions {
  int64_t repeat = 10;  // column normalisations, 1 .. 45
  float eps = 1e-6f;    // added to the softmax and to every sum that divides
};

/// Projects each matrix onto the doubly stochastic ones: softmax over the last axis, eps added to
/// it, columns divided by their sums, then `repeat` - 1 times rows and columns. Columns sum to 1 up
/// to eps, rows as closely as `repeat` rounds converge.
///
///   x     f32   [tokens, streams, streams]   contiguous
///   out   f32   [tokens, streams, streams]   contiguous
///
/// Tokens may have several dimensions. A row of -inf only, +inf or NaN makes its matrix NaN.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, repeat is not in 1 .. 45
///          or out overlaps x;
///          kind unsupported beyond 4 streams.
/// Example: sinkhorn_fwd(x, out, {.repeat = 10}, stream);
void sinkhorn_fwd(const TensorView& x, const TensorView& out, const SinkhornOptions& options,
                  Stream stream);

const OpInfo& sinkhorn_fwd_op();

}  // namespace tessera::kernels
