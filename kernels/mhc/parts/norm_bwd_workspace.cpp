#include "kernels/mhc/parts/norm_bwd_workspace.h"

#include <algorithm>

#include "kernels/mhc/parts/projection_parts.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int64_t kBlocks = 264;     // two per multiprocessor of an H200, all resident at once
constexpr int64_t kFewestTiles = 4;  // of a run

}  // namespace

NormBwdRuns::NormBwdRuns(const NormBwdShape& shape) {
  if (shape.tokens == 0 || shape.width == 0) return;
  const int64_t tiles = (shape.tokens + kBwdRows - 1) / kBwdRows;
  const int64_t most = std::max<int64_t>(1, kBlocks / (shape.width / kBwdColumns));
  tiles_per_run = std::max(kFewestTiles, (tiles + most - 1) / most);
  runs = (tiles + tiles_per_run - 1) / tiles_per_run;
}

int64_t norm_bwd_workspace(const NormBwdShape& shape) {
  const int64_t entries = padded_entries(shape.entries);
  return NormBwdRuns(shape).runs * shape.width * entries +
         shape.tokens * (2 * entries + kBwdVector);
}

std::vector<Args::Tensor> norm_bwd_tensors(const NormBwdShape& shape, const TensorView& workspace) {
  const int64_t entries = padded_entries(shape.entries), runs = NormBwdRuns(shape).runs;
  auto* next = static_cast<float*>(workspace.data);
  const auto take = [&](DType dtype, const Dims& dims, int64_t elements) {
    float* const data = next;
    if (next != nullptr) next += elements;
    return TensorView(data, dtype, dims, workspace.device);
  };
  const TensorView partials =
      take(DType::f32, {runs, shape.width, entries}, runs * shape.width * entries);
  const TensorView row_grads =
      take(DType::f32, {shape.tokens, entries + kBwdVector}, shape.tokens * (entries + kBwdVector));
  const TensorView halves = take(DType::bf16, {shape.tokens, 2 * entries}, shape.tokens * entries);
  return {{"partials", partials}, {"row_grads", row_grads}, {"halves", halves}};
}

}  // namespace tessera::kernels::mhc
