#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, cut along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both see the same bits.
//
// The columns are consumed in sums, four to a part, each from +0. They are added in ascending order,
// parts from +0 in runs (n_splits of them), runs in the result: a tree that depends on width, entries
// and n_splits alone, so that the bits do not depend on the other tokens.

#include <cstdint>
#include <functional>
#include <span>

#include "dsl/builder.h"
#include "kernels/op.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kMaxEntries = 32;
inline constexpr int64_t kRunUnit = 256;  // columns; width and runs are multiples of it

/// What the result depends on, and the number of tokens.
struct ProjectionShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
  int64_t num_splits = 1;                      // 1 .. 16
};

/// Partial results: products [parts, tokens * entries], then squares [parts, tokens].
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

/// How a kernel adds partial results.
struct PartSum {
  int32_t entries, parts, parts_per_run;
  int32_t align;           // bytes, of the workspace
  int32_t has_few_tokens;  // 0 or 1: speed alone

  PartSum(const ProjectionShape& shape, const TensorView& workspace);
};
/// The sums over all parts of `rows` tokens of a block, from `first_token` on. All threads of the
/// block fetch the parts into shared memory; who asks for a sum adds them. Outside of the tensors: 0.
/// Shared memory: 4 bytes for every part, token, and entry or square.
///
///   const SummedParts sums(k, sum, products, squares, first_token, rows);
///   out(first_token + row, j) = sums.product(row, j);
class SummedParts {
 public:
  /// products [parts, tokens * entries], squares [parts, tokens].
  SummedParts(dsl::Builder& k, const PartSum& sum, const dsl::Ref& products,
              const dsl::Ref& squares, const dsl::Value& first_token, int64_t rows);

  dsl::Value product(const dsl::Value& row, const dsl::Value& entry) const;
  dsl::Value square(const dsl::Value& row) const;

 private:
  dsl::Value add_runs(const std::function<dsl::Value(const dsl::Value& part)>& of_part) const;

  dsl::Builder& k_;
  PartSum sum_;
  dsl::Ref products_;  // shared [parts, rows * entries]
  dsl::Ref squares_;   // shared [parts, rows]
};

/// A block that adds parts: its threads and tokens, so many that the parts fit in shared memory.
/// `row_lanes` threads go on with one token: with many tokens all threads do; with few, one warp
/// does, and the others only help to fetch.
struct SumBlock {
  int threads = 128;
  int64_t rows;

  SumBlock(const PartSum& sum, int64_t row_lanes);
};

/// 1 / sqrt(squares / width + eps), the factor of every product.
inline dsl::Value norm_factor(const dsl::Value& squares, int64_t width, const dsl::Value& eps) {
  return dsl::rsqrt(squares / static_cast<float>(width) + eps);
}

}  // namespace tessera::kernels::mhc
