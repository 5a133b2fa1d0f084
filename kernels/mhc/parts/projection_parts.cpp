#include "kernels/mhc/parts/projection_parts.h"

#include <algorithm>

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kUnit = 256;  // columns: 8 warps keep one element of each entry for them
// Columns of a part where runs are long.
constexpr int64_t kFewestColumns = 1024, kMostColumns = 2048;
constexpr int64_t kParts = 8;        // goal: each SM reads fn of its part
constexpr int64_t kMostKept = 192;   // elements in the registers of one lane
constexpr int64_t kFewTokens = 128;  // up to here SMs are idle unless parts are halved

}  // namespace

ProjectionParts::ProjectionParts(const ProjectionShape& shape) {
  if (shape.width == 0) return;
  const int64_t run = (shape.width / kRunUnit + shape.num_splits - 1) / shape.num_splits * kRunUnit;
  const int64_t share = shape.width / kParts / kUnit * kUnit;
  columns = std::min(kMostKept / padded_entries(shape.entries) * kUnit,
                     std::clamp(share, kFewestColumns, kMostColumns));
  while (run % columns != 0) columns -= kUnit;
  parts = (shape.width + columns - 1) / columns;
  parts_per_run = run / columns;
  halves = shape.tokens <= kFewTokens ? 2 : 1;
}

int64_t projection_workspace(const ProjectionShape& shape) {
  const ProjectionParts few({1, shape.entries, shape.width, shape.num_splits});
  return few.stored() * shape.tokens * (shape.entries + 1);
}

TensorView product_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const Dims dims = {ProjectionParts(shape).stored(), shape.tokens * shape.entries};
  return TensorView(workspace.data, DType::f32, dims, workspace.device);
}

TensorView square_parts(const ProjectionShape& shape, const TensorView& workspace) {
  const int64_t stored = ProjectionParts(shape).stored();
  float* const first = static_cast<float*>(workspace.data);
  float* const data = first == nullptr ? first : first + stored * shape.tokens * shape.entries;
  return TensorView(data, DType::f32, {shape.tokens, stored}, workspace.device);
}

}  // namespace tessera::kernels::mhc
