#pragma once
// The kernels of norm_fn_bwd: gradients of the products per token, then both matrix products over
// runs of tokens, then the sum over the runs.

#include <cstdint>
#include <vector>

#include "dsl/ir/tile.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kBwdRows = 16;      // tokens of a tile
inline constexpr int64_t kBwdColumns = 256;  // of a block

struct NormBwdShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
};

/// Runs of tiles of kBwdRows tokens. Their products are summed in ascending order, so that grad_fn
/// depends on the shape alone. Without tokens there is no run.
struct NormBwdRuns {
  int64_t tiles_per_run = 1, runs = 0;
  explicit NormBwdRuns(const NormBwdShape& shape);
};

/// Elements of the f32 workspace.
int64_t norm_bwd_workspace(const NormBwdShape& shape);
/// The tensors in the workspace, with E = padded_entries(entries):
///
///   partials   f32  [runs, width, E]  products of a run of tokens
///   row_grads  f32  [tokens, E + 4]   gradients of the products, rounded to tf32; then 2 dq
///   halves     bf16 [tokens, 2 * E]   the gradients of the products as the sum of two numbers
std::vector<More::Tensor> norm_bwd_tensors(const NormBwdShape& shape, const TensorView& workspace);

/// Everything that generated code depends on.
struct NormBwdSpec {
  int32_t entries, width;
  int32_t has_weight;       // 0 or 1
  int32_t align;            // bytes, of residual and grad_residual
  int32_t fn_align;         // of fn, norm_weight and their gradients
  int32_t workspace_align;  // of all tensors in it
};

/// Tensors: grad_out, out_mul [tokens, entries], sqrsum [tokens]; row_grads, halves.
/// Scalars: norm_eps, width_eps = norm_eps * width.
ir::Kernel build_norm_bwd_rows(const NormBwdSpec& s);
/// Tensors: residual [tokens, width], fn, norm_weight if there is one, row_grads, halves; grad_residual [tokens, width], partials. Scalar: tiles_per_run.
ir::Kernel build_norm_bwd_products(const NormBwdSpec& s);
/// Tensors: partials, fn and norm_weight if there is one; grad_fn, grad_norm_weight with it.
ir::Kernel build_norm_bwd_sum(const NormBwdSpec& s);

}  // namespace tessera::kernels::mhc
