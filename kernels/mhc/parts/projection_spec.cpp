#include "kernels/mhc/parts/projection_spec.h"

#include <algorithm>

#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kMatrixRows = 16;
constexpr int64_t kColumnsInFlight = 2048;  // of tiles copied ahead
constexpr int64_t kShortRow = 1024;
constexpr int64_t kOther = 1024;  // bytes of shared memory that the compiler adds

}  // namespace

bool ProjectionSpec::has_paired_matrices() const {
  return halves == 1 && part_columns <= kShortRow;
}

int64_t ProjectionSpec::rows() const {
  return has_paired_matrices() ? 2 * kMatrixRows : kMatrixRows;
}

int64_t ProjectionSpec::tile_bytes() const {
  return rows() * row_columns() * 2;
}

int64_t ProjectionSpec::other_bytes() const {
  return warps() * rows() * (padded_entries(entries) + 1) * 4 + kOther;
}

dsl::PipelineOptions ProjectionSpec::copies_ahead() const {
  const int64_t tiles_in_flight = kColumnsInFlight * kMatrixRows / (rows() * columns());
  const auto at_most = [](int64_t tiles, int64_t most) {
    return static_cast<int>(std::min(tiles, most));
  };
  if (by_row()) {
    return {.stages = at_most(std::clamp<int64_t>(2 * tiles_in_flight, 2, 8), most_tiles),
            .in_place = true};
  }
  if (halves == 2) return {};  // few tokens: a block has one tile or two
  return {.stages = at_most(std::clamp<int64_t>(tiles_in_flight + 1, 2, 5), most_tiles)};
}

}  // namespace tessera::kernels::mhc
