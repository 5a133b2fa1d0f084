#pragma once
// The kernels of norm_fn_bwd: gradients of the products per token, then both matrix products over
// runs of tokens, then the sum over the runs.

#include "dsl/ir/tile.h"

namespace tessera::kernels::mhc {

/// Everything that generated code depends on.
struct NormBwdSpec {
  int32_t entries, width;
  int32_t has_weight;       // 0 or 1
  int32_t align;            // bytes, of residual and grad_residual
  int32_t fn_align;         // of fn, norm_weight and their gradients
  int32_t workspace_align;  // of all tensors in the workspace
};

/// The workspace's tensors are described in norm_bwd_workspace.h.
///
/// Tensors: grad_out, out_mul [tokens, entries], sqrsum [tokens]; row_grads, halves.
/// Scalars: norm_eps, width_eps = norm_eps * width.
ir::Kernel build_norm_bwd_rows(const NormBwdSpec& s);
/// Tensors: residual [tokens, width], fn, norm_weight if there is one, row_grads, halves;
/// grad_residual [tokens, width], partials. Scalar: tiles_per_run.
ir::Kernel build_norm_bwd_products(const NormBwdSpec& s);
/// Tensors: partials, fn and norm_weight if there is one; grad_fn, grad_norm_weight with it.
ir::Kernel build_norm_bwd_sum(const NormBwdSpec& s);

}  // namespace tessera::kernels::mhc
