// Runs the projection: which kernel for which shape, and its grid.

#include "kernels/mhc/projection.h"

#include <algorithm>

#include "kernels/alignment.h"
#include "kernels/jit/run_op.h"
#include "kernels/jit/target.h"
#include "kernels/mhc/projection_kernel.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kSms = 132;
constexpr int64_t kManyTiles = 24;  // of a block: from here on sums are added late

/// The runs of rows, and the tiles of the longest.
struct Runs {
  int64_t row_blocks, tiles;
};

/// So few runs that all blocks are resident at once, and a block has two tiles.
Runs runs_of(const ProjectionShape& shape, const ProjectionSpec& spec) {
  const int64_t parts = ProjectionParts(shape).parts;
  const int64_t tiles = (shape.tokens + spec.rows() - 1) / spec.rows();
  const int64_t row_blocks = std::max<int64_t>(1, std::min(kSms / parts, (tiles + 1) / 2));
  return {row_blocks, (tiles + row_blocks - 1) / row_blocks};
}

ProjectionSpec spec_of(const ProjectionShape& shape, const ProjectionTensors& tensors) {
  const ProjectionParts parts(shape);
  ProjectionSpec spec = {static_cast<int32_t>(shape.entries),
                         static_cast<int32_t>(shape.width),
                         static_cast<int32_t>(parts.columns),
                         static_cast<int32_t>(parts.halves),
                         tensors.norm_weight.rank() != 0 ? 1 : 0,
                         tensors.is_last_reader ? 1 : 0,
                         common_alignment({tensors.residual}),
                         common_alignment({tensors.fn}),
                         common_alignment({tensors.workspace}),
                         /*most_tiles=*/1,
                         /*adds_late=*/0};
  const int64_t for_tiles = jit::shared_memory_limit(tensors.residual.device) - spec.other_bytes();
  spec.most_tiles = static_cast<int32_t>(std::clamp<int64_t>(for_tiles / spec.tile_bytes(), 1, 8));
  const bool has_many = runs_of(shape, spec).tiles >= kManyTiles;
  spec.adds_late = spec.by_row() && !spec.has_paired_matrices() && has_many ? 1 : 0;
  return spec;
}

}  // namespace

void run_projection(const char* op, const ProjectionShape& shape, const ProjectionTensors& tensors,
                    Stream stream) {
  if (shape.width == 0) return;
  const ProjectionSpec spec = spec_of(shape, tensors);
  std::vector<TensorView> arguments = {
      TensorView(tensors.residual.data, DType::bf16, {shape.tokens, shape.width},
                 tensors.residual.device),
      tensors.fn};
  if (spec.has_weight != 0) arguments.push_back(tensors.norm_weight);
  arguments.push_back(product_parts(shape, tensors.workspace));
  arguments.push_back(square_parts(shape, tensors.workspace));
  const jit::Scalar scalars[] = {runs_of(shape, spec).row_blocks};
  jit::run_op(
      op, "projection" + jit::spec_bytes(spec), [&] { return build_projection(spec); }, arguments,
      scalars, stream);
}

ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTensors& tensors) {
  return build_projection(spec_of(shape, tensors));
}

}  // namespace tessera::kernels::mhc
