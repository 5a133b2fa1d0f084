#pragma once
// The projection of the normalised residual, from which the mixes of a sub-layer are made.

#include "kernels/op.h"

namespace tessera::kernels {

struct NormFnOptions {
  float norm_eps = 1e-6f;
  int64_t n_splits = 16;          // runs of columns that are summed apart, 1 .. 16
  bool save_for_backward = true;  // asks for out_mul and sqrsum
};

struct NormFnOutputs {
  TensorView out, out_mul, sqrsum;
};

/// With y the row of K = streams * hidden columns of a token and F = fn * norm_weight, rounded to
/// tf32 (nearest, ties away):
///
///   out_mul = F y,   sqrsum = sum of y^2,   out = out_mul / sqrt(sqrsum / K + norm_eps)
///
///   residual      bf16   [tokens, streams, hidden]     contiguous
///   fn            f32    [entries, streams * hidden]   contiguous, entries <= 32
///   norm_weight   f32    [streams * hidden]            or null: ones
///   out, out_mul  f32    [tokens, entries]             contiguous
///   sqrsum        f32    [tokens]                      contiguous
///   workspace     f32    [norm_fn_workspace(...)]      contents do not matter
///
/// Tokens may have several dimensions. Every row is a function of its residual, `fn` and n_splits
/// alone: K is cut into n_splits runs of ceil(K / 256 / n_splits) * 256 columns, the last ones
/// shorter or empty, whose sums are added in ascending order.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, streams * hidden is no
///          multiple of 256, n_splits is not in 1 .. 16 or tensors overlap;
///          kind unsupported beyond 32 entries.
/// Example: norm_fn_fwd(residual, fn, {}, {out, out_mul, sqrsum}, workspace, {}, stream);
void norm_fn_fwd(const TensorView& residual, const TensorView& fn, const TensorView& norm_weight,
                 const NormFnOutputs& outputs, const TensorView& workspace,
                 const NormFnOptions& options, Stream stream);

/// Elements of the workspace, for tokens rows of streams * hidden = columns.
int64_t norm_fn_workspace(int64_t tokens, int64_t entries, int64_t columns, int64_t n_splits);

const OpInfo& norm_fn_fwd_op();

}  // namespace tessera::kernels
