#pragma once
// Everything in front of a sub-layer, for inference.

#include "kernels/op.h"

namespace tessera::kernels {

struct PreBigFuseOptions {
  float norm_eps = 1e-6f, pre_eps = 1e-6f, sinkhorn_eps = 1e-6f;
  float post_mult_value = 1.0f;
  int64_t sinkhorn_repeat = 10;  // 1 .. 45
  int64_t n_splits = 16;         // 1 .. 16
};

struct PreBigFuseOutputs {
  TensorView post_mix, comb_mix, layer_input;
};

/// The chain norm_fn_fwd, pre_split_mixes_fwd, sinkhorn_fwd, pre_apply_mix_fwd with the same
/// parameters, bit for bit.
///
///   residual      bf16   [tokens, streams, hidden]        contiguous
///   fn            f32    [entries, streams * hidden]      contiguous, entries = streams *
///                                                         (streams + 2)
///   scale         f32    [3]
///   base          f32    [entries]
///   norm_weight   f32    [streams * hidden]               or null: ones
///   post_mix      f32    [tokens, streams]                contiguous
///   comb_mix      f32    [tokens, streams, streams]       contiguous
///   layer_input   bf16   [tokens, hidden]                 contiguous
///   workspace     f32    [pre_big_fuse_workspace(...)]    contents do not matter
///
/// Tokens may have several dimensions.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, streams * hidden is no
///          multiple of 256, a parameter is out of range or tensors overlap;
///          kind unsupported beyond 4 streams.
/// Example: pre_big_fuse(residual, fn, scale, base, {}, {post_mix, comb_mix, layer_input},
///                       workspace, {}, stream);
void pre_big_fuse(const TensorView& residual, const TensorView& fn, const TensorView& scale,
                  const TensorView& base, const TensorView& norm_weight,
                  const PreBigFuseOutputs& outputs, const TensorView& workspace,
                  const PreBigFuseOptions& options, Stream stream);

/// Elements of the workspace.
int64_t pre_big_fuse_workspace(int64_t tokens, int64_t streams, int64_t hidden, int64_t n_splits);

const OpInfo& pre_big_fuse_op();

}  // namespace tessera::kernels
