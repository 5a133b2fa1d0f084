#pragma once
// Transposition of the last two dimensions, exact copies of bits of any 1, 2 or 4-byte element.

#include "kernels/op.h"

namespace tessera::kernels {

/// Writes out[b, c, r] = x[b, r, c].
///
///   x     any 1, 2 or 4-byte dtype  [batch, rows, cols]   last stride 1, other strides free
///   out   as x                      [batch, cols, rows]   contiguous
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or out overlaps x;
///          kind unsupported if batch or cols / 64 exceeds 65535 (grid limits).
/// Example: batched_transpose(x, out, stream);
void batched_transpose(const TensorView& x, const TensorView& out, Stream stream);

/// Writes out[c, r] = x[r, c]: batched_transpose of one batch.
///
///   x     any 1, 2 or 4-byte dtype  [rows, cols]   last stride 1, row stride free
///   out   as x                      [cols, rows]   contiguous
///
/// Errors:  as batched_transpose.
/// Example: transpose(x, out, stream);
void transpose(const TensorView& x, const TensorView& out, Stream stream);

const OpInfo& batched_transpose_op();
const OpInfo& transpose_op();

}  // namespace tessera::kernels
