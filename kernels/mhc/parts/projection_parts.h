#pragma once
// The partial results that a projection leaves for the next kernel: sums over parts of the columns.
//
// The columns of a part have eight sums, each from +0. They are added in fours, ((s0 + s1) + s2) + s3,
// and the two halves give the part. Parts are added in ascending order from +0 into n_splits runs, and
// the runs into the result. This tree depends only on width, entries and n_splits, so a token's bits
// do not depend on the other tokens.

#include <cstdint>

#include "kernels/call_types.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kMaxEntries = 32;
inline constexpr int64_t kRunUnit = 256;  // columns; width and runs are multiples of it

/// Entries padded to a multiple of 8, the columns of one matrix instruction.
inline int64_t padded_entries(int64_t entries) {
  return (entries + 7) / 8 * 8;
}

/// The dims that the result depends on, and the number of tokens.
struct ProjectionShape {
  int64_t tokens = 0, entries = 0, width = 0;  // residual [tokens, width], fn [entries, width]
  int64_t num_splits = 1;                      // 1 .. 16
};

struct ProjectionParts {
  int64_t columns = 0;  // of a part; the last one may be shorter
  int64_t parts = 0, parts_per_run = 1;
  int64_t halves = 1;  // 2 with few tokens: different blocks compute the two halves of a part

  explicit ProjectionParts(const ProjectionShape& shape);
  int64_t stored() const { return parts * halves; }
};

/// Elements of the f32 workspace for the partial results: products [stored(), tokens * entries], then
/// squares [tokens, stored()]. The size grows with the number of tokens.
int64_t projection_workspace(const ProjectionShape& shape);

/// The products and the squares in the workspace.
TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace);
TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace);

}  // namespace tessera::kernels::mhc
