// Launches the projection: chooses kernel and grid by shape.

#include "kernels/mhc/parts/projection.h"

#include <algorithm>

#include "kernels/jit/target.h"
#include "kernels/mhc/parts/projection_kernel.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kSms = 132;
constexpr int64_t kManyTiles = 24;  // tiles per block from which late sums pay

/// The runs of rows, and the number of tiles of the longest run.
struct Runs {
  int64_t row_blocks, tiles;
};

/// Chooses so few runs that all blocks are resident at once and a block has two tiles.
Runs runs_of(const ProjectionShape& shape, const ProjectionSpec& spec) {
  const int64_t parts = ProjectionParts(shape).parts;
  const int64_t tiles = (shape.tokens + spec.rows() - 1) / spec.rows();
  const int64_t row_blocks = std::max<int64_t>(1, std::min(kSms / parts, (tiles + 1) / 2));
  return {row_blocks, (tiles + row_blocks - 1) / row_blocks};
}

ProjectionSpec spec_of(const Call& c, const ProjectionShape& shape, bool is_last_reader) {
  const ProjectionParts parts(shape);
  ProjectionSpec spec = {static_cast<int32_t>(shape.entries),
                         static_cast<int32_t>(shape.width),
                         static_cast<int32_t>(parts.columns),
                         static_cast<int32_t>(parts.halves),
                         c.has("norm_weight") ? 1 : 0,
                         is_last_reader ? 1 : 0,
                         c.align({"residual"}),
                         c.align({"fn"}),
                         c.align({"workspace"}),
                         /*most_tiles=*/1,
                         /*adds_late=*/0};
  const int64_t for_tiles = jit::shared_memory_limit(c.device()) - spec.other_bytes();
  spec.most_tiles = static_cast<int32_t>(std::clamp<int64_t>(for_tiles / spec.tile_bytes(), 1, 8));
  const bool has_many = runs_of(shape, spec).tiles >= kManyTiles;
  spec.adds_late = spec.by_row() && !spec.has_paired_matrices() && has_many ? 1 : 0;
  return spec;
}

}  // namespace

ProjectionShape projection_shape(const Call& c) {
  return {c["T"], c["M"], c["n"] * c["H"], c["n_splits"]};
}

int64_t projection_elements(const Call& c) {
  return projection_workspace(projection_shape(c));
}

std::vector<Args::Tensor> projected_parts(const Call& c) {
  const ProjectionShape shape = projection_shape(c);
  if (shape.width == 0) return {};
  return {{"products", product_parts(shape, c.given("workspace"))},
          {"squares", square_parts(shape, c.given("workspace"))}};
}

void add_projection(const Call& c, Launches& go, bool is_last_reader) {
  const ProjectionShape shape = projection_shape(c);
  if (shape.width == 0) return;
  const ProjectionSpec spec = spec_of(c, shape, is_last_reader);
  Args args{projected_parts(c), {{"row_blocks", runs_of(shape, spec).row_blocks}}};
  args.tensors.push_back({"residual", reshaped(c.given("residual"), {shape.tokens, shape.width})});
  go.add(build_projection, spec, args, "projection");
}

}  // namespace tessera::kernels::mhc
