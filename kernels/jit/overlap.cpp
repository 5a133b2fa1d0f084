#include "kernels/jit/overlap.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tessera::kernels {
namespace {

/// Bytes between neighbours in this dimension; 0 for e2m1 strides that end within a byte.
int64_t step_bytes(const TensorView& view, int dim) {
  const int64_t half_bytes = view.strides[dim] % 2 == 0 ? view.strides[dim] / 2 : 0;
  return bits(view.dtype) == 4 ? half_bytes : view.strides[dim] * bytes(view.dtype);
}

/// If rows are `pitch` bytes apart, the bytes of `view` lie at [first, first + width) of each row.
/// width < 0 if a row does not hold them.
struct Columns {
  int64_t first = 0, width = -1;
};
Columns columns(const TensorView& view, int64_t pitch) {
  TensorView row = view;
  for (int i = 0; i < view.rank(); ++i) {
    const int64_t step = step_bytes(view, i);
    if (step > 0 && step % pitch == 0) row.shape[i] = 1;
  }
  const int64_t width = row.span_bytes();
  const auto address = static_cast<int64_t>(reinterpret_cast<intptr_t>(view.data));
  return {address % pitch, width <= pitch ? width : -1};
}

}  // namespace

bool self_disjoint(const TensorView& view) {
  if (view.size() == 0) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (int i = 0; i < view.rank(); ++i) {
    if (view.shape[i] > 1) dims.emplace_back(view.strides[i], view.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t inner = 1;  // elements from the first to the last of the dimensions so far
  for (const auto& [stride, extent] : dims) {
    if (stride < inner) return false;
    inner += (extent - 1) * stride;
  }
  return true;
}

bool disjoint(const TensorView& a, const TensorView& b) {
  if (a.device != b.device || a.size() == 0 || b.size() == 0) return true;
  const auto* a_begin = static_cast<const std::byte*>(a.data);
  const auto* b_begin = static_cast<const std::byte*>(b.data);
  if (a_begin + a.span_bytes() <= b_begin || b_begin + b.span_bytes() <= a_begin) return true;
  // The spans overlap, but rows of one pitch may hold the two views side by side.
  for (const TensorView* view : {&a, &b}) {
    for (int i = 0; i < view->rank(); ++i) {
      if (view->shape[i] <= 1) continue;
      const int64_t pitch = step_bytes(*view, i);
      if (pitch <= 0) continue;
      const Columns ca = columns(a, pitch), cb = columns(b, pitch);
      if (ca.width < 0 || cb.width < 0) continue;
      const int64_t ahead =
          (cb.first - ca.first + pitch) % pitch;  // from a's first to b's first byte
      if (ahead >= ca.width && pitch - ahead >= cb.width) return true;
    }
  }
  return false;
}

}  // namespace tessera::kernels
