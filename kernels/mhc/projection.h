#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, cut along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both see the same bits.
//
// The columns are consumed in sums, four to a part, each from +0. They are added in ascending order,
// parts from +0 in runs (n_splits of them), runs in the result: a tree that depends on width, entries
// and n_splits alone, so that the bits do not depend on the other tokens.

#include <cstdint>

#include "dsl/ir/tile.h"
#include "kernels/op.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kMaxEntries = 32;
inline constexpr int64_t kRunUnit = 256;  // columns; width and runs are multiples of it

/// What the result depends on, and the number of tokens.
struct ProjectionShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
  int64_t num_splits = 1;                      // 1 .. 16
};

/// Partial results: products [parts, tokens * entries], then squares [tokens, parts].
struct ProjectionParts {
  int64_t part_columns = 0;  // the last part may be shorter
  int64_t parts = 0, parts_per_run = 1;

  explicit ProjectionParts(const ProjectionShape& shape);
};

/// Elements of the f32 workspace that holds the partial results.
int64_t projection_workspace(const ProjectionShape& shape);

/// The tensors of the op: residual [tokens.., streams, hidden], workspace [projection_workspace()].
/// An absent weight has rank 0.
struct ProjectionTensors {
  TensorView residual, fn, norm_weight, workspace;
};
/// Writes the partial results. `op` names the launch.
void run_projection(const char* op, const ProjectionShape& shape, const ProjectionTensors& tensors,
                    Stream stream);
/// The kernel that run_projection launches; data pointers are read for their alignment only.
ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTensors& tensors);

/// The products and the squares in the workspace.
TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace);
TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace);

}  // namespace tessera::kernels::mhc
