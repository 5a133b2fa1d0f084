#pragma once
// How norm_fn_bwd splits the tokens into runs, and the tensors that its kernels pass to each other.

#include <cstdint>
#include <vector>

#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kBwdRows = 16;      // tokens of a tile
inline constexpr int64_t kBwdColumns = 256;  // of a block
// F32 values after the entries of row_grads: 2 dq, then padding.
inline constexpr int64_t kBwdVector = 4;

struct NormBwdShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
};

/// Runs of tiles of kBwdRows tokens. The products of the runs are summed in ascending order, so
/// that grad_fn depends only on the shape. Without tokens there is no run.
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
std::vector<Args::Tensor> norm_bwd_tensors(const NormBwdShape& shape, const TensorView& workspace);

}  // namespace tessera::kernels::mhc
