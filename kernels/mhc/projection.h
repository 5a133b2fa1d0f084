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
  int32_t entries, parts, parts_per_group, parts_per_run;

  explicit PartSum(const ProjectionShape& shape);
};
/// The sums over all parts of `rows` tokens of a block, from `first_token` on. All threads of the
/// block add the groups, each element on its own thread, and leave them in shared memory; who asks
/// for a sum adds the runs. Outside of the tensors: 0. Shared memory: 4 bytes for every group, token
/// and entry.
///
///   const SummedParts sums(k, sum, products, squares, first_token, rows);
///   out(first_token + row, j) = sums.product(row, j);
class SummedParts {
 public:
  /// products [parts, tokens, entries], squares [parts, tokens].
  SummedParts(dsl::Builder& k, const PartSum& sum, const dsl::Ref& products,
              const dsl::Ref& squares, const dsl::Value& first_token, int64_t rows);

  dsl::Value product(const dsl::Value& row, const dsl::Value& entry) const;
  dsl::Value square(const dsl::Value& row) const;

 private:
  dsl::Value add_runs(const std::function<dsl::Value(const dsl::Value& group)>& of_group) const;

  dsl::Builder& k_;
  int64_t groups_per_run_, runs_;
  dsl::Ref products_;  // shared [groups, rows, entries]
  dsl::Ref squares_;   // shared [groups, rows]
};

/// Threads of a block that adds the parts, and its tokens. `row_lanes` threads go on with one token:
/// with many tokens all threads do; with few, one warp does, and the others only help to add.
struct SumBlock {
  int threads;
  int64_t rows;

  SumBlock(const PartSum& sum, int64_t row_lanes);
};

/// 1 / sqrt(squares / width + eps), the factor of every product.
inline dsl::Value norm_factor(const dsl::Value& squares, int64_t width, const dsl::Value& eps) {
  return dsl::rsqrt(squares / static_cast<float>(width) + eps);
}

}  // namespace tessera::kernels::mhc
