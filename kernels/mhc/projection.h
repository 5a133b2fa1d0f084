#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, cut along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both see the same bits.
//
// The columns are consumed in sums of 256, each from +0. They are added in ascending order from +0
// in groups, groups in runs (n_splits of them), runs in the result: a tree that depends on width and
// n_splits alone. Who adds what is free: with many tokens a block takes a whole group, with few
// tokens one sum, and the bits are the same.

#include <cstdint>
#include <functional>
#include <span>

#include "dsl/builder.h"
#include "kernels/op.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kMaxEntries = 32;
inline constexpr int64_t kSumColumns = 256;  // `width` is a multiple of it

/// What the result depends on.
struct ProjectionShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
  int64_t num_splits = 1;                      // 1 .. 16
};

/// Who computes what: speed alone.
struct ProjectionTiling {
  int rows = 64;             // of one block, 64 or 128
  bool whole_groups = true;  // a part is a group of sums, else one sum of 256 columns
};
/// Many rows per block read fn less often; small parts keep all SMs busy with few tokens.
ProjectionTiling pick_tiling(const ProjectionShape& shape);

/// Partial results: products [parts, tokens, entries], then squares [parts, tokens]. A part is one
/// sum of 256 columns or one group of them.
struct ProjectionParts {
  int64_t part_columns = 0;
  int64_t parts = 0, parts_per_group = 1, parts_per_run = 1;

  ProjectionParts(const ProjectionShape& shape, const ProjectionTiling& tiling);
  explicit ProjectionParts(const ProjectionShape& shape)
      : ProjectionParts(shape, pick_tiling(shape)) {}
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
ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTiling& tiling,
                             const ProjectionTensors& tensors);

/// The products and the squares in the workspace.
TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace);
TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace);

/// How a kernel adds partial results.
struct PartSum {
  int32_t parts, parts_per_group, parts_per_run;

  explicit PartSum(const ProjectionParts& p)
      : parts(static_cast<int32_t>(p.parts)),
        parts_per_group(static_cast<int32_t>(p.parts_per_group)),
        parts_per_run(static_cast<int32_t>(p.parts_per_run)) {}
};
/// The sum of part(p) over all parts, by groups and runs.
dsl::Value sum_parts(dsl::Builder& k, const PartSum& sum,
                     const std::function<dsl::Value(const dsl::Value& part)>& part);

/// 1 / sqrt(squares / width + eps), the factor of every product.
inline dsl::Value norm_factor(const dsl::Value& squares, int64_t width, const dsl::Value& eps) {
  return dsl::rsqrt(squares / static_cast<float>(width) + eps);
}

}  // namespace tessera::kernels::mhc
