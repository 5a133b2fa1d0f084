#pragma once
// The gradients of the residual streams behind a sub-layer.

#include "kernels/op.h"

namespace tessera::kernels {

/// Gradients of post_fwd. grad_x and grad_residual are fma chains in f32 over ascending output
/// streams, rounded once; the gradients of the mixes are sums over the hidden columns in f32:
///
///   grad_x[t, h]            = sum over o of post_mix[t, o] * grad_out[t, o, h]
///   grad_residual[t, i, h]  = sum over o of comb_mix[t, i, o] * grad_out[t, o, h]
///   grad_post_mix[t, o]     = sum over h of x[t, h] * grad_out[t, o, h]
///   grad_comb_mix[t, i, o]  = sum over h of residual[t, i, h] * grad_out[t, o, h]
///
///   grad_out        bf16   [tokens, streams, hidden]    contiguous
///   x               bf16   [tokens, hidden]             contiguous
///   residual        bf16   [tokens, streams, hidden]    contiguous
///   post_mix        f32    [tokens, streams]            contiguous
///   comb_mix        f32    [tokens, streams, streams]   contiguous
///   grad_x          as x, grad_residual as residual, grad_post_mix as post_mix,
///   grad_comb_mix   as comb_mix, all contiguous
///
/// Tokens may have several dimensions, the same in every tensor. The order of every sum is a
/// function of `hidden` alone.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or an output overlaps
///          another tensor;
///          kind unsupported beyond 4 streams.
/// Example: post_bwd(grad_out, x, residual, post_mix, comb_mix,
///                   {grad_x, grad_residual, grad_post_mix, grad_comb_mix}, stream);
struct PostGradients {
  TensorView x, residual, post_mix, comb_mix;
};
void post_bwd(const TensorView& grad_out, const TensorView& x, const TensorView& residual,
              const TensorView& post_mix, const TensorView& comb_mix, const PostGradients& grad,
              Stream stream);

const OpInfo& post_bwd_op();

}  // namespace tessera::kernels
