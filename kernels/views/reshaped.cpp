#include "kernels/views/reshaped.h"

#include <fmt/format.h>

#include "dsl/base/error.h"
#include "kernels/call_types.h"

namespace tessera::kernels {
namespace {

/// The dimensions of more than one element, as (extent, stride).
TensorView without_ones(const TensorView& view) {
  TensorView dense = view;
  dense.shape = dense.strides = {};
  for (int i = 0; i < view.rank(); ++i) {
    if (view.shape[i] == 1) continue;
    dense.shape.push_back(view.shape[i]);
    dense.strides.push_back(view.strides[i]);
  }
  return dense;
}

}  // namespace

TensorView reshaped(const TensorView& view, const Dims& shape) {
  if (is_absent(view)) return view;
  TESSERA_CHECK(view.size() == num_elements(shape),
                fmt::format("{} has other elements than {}", to_string(view), to_string(shape)));
  TensorView result = view;
  result.shape = shape;
  result.strides = row_major_strides(shape);
  if (view.size() == 0) return result;
  // From the last dimension on, groups of dimensions of both shapes with as many elements. The old
  // dimensions of a group must lie as those of a row-major tensor, but for the stride of the last.
  const TensorView old = without_ones(view);
  int of_old = old.rank() - 1;
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0;) {
    int64_t taken = shape[i], seen = 1;
    int first = i;
    if (taken > 1) {
      seen = old.shape[of_old];
      stride = old.strides[of_old];
    }
    while (taken != seen) {
      if (taken < seen) {
        taken *= shape[--first];
        continue;
      }
      const int64_t next = old.strides[of_old] * old.shape[of_old];
      TESSERA_CHECK(old.strides[--of_old] == next,
                    fmt::format("{} is not {} without a copy", to_string(view), to_string(shape)));
      seen *= old.shape[of_old];
    }
    if (seen > 1) --of_old;
    for (; i >= first; --i) {
      result.strides[i] = stride;
      stride *= shape[i];
    }
  }
  return result;
}

TensorView retyped(const TensorView& view, DType dtype) {
  TensorView result = view;
  result.dtype = dtype;
  if (is_absent(view) || bits(view.dtype) == bits(dtype)) return result;
  const auto in_new = [&](int64_t elements) {
    TESSERA_CHECK(elements * bits(view.dtype) % bits(dtype) == 0,
                  fmt::format("{} in elements of {}", to_string(view), name(dtype)));
    return elements * bits(view.dtype) / bits(dtype);
  };
  const int last = view.rank() - 1;
  result.shape[last] = in_new(view.shape[last]);
  const bool is_empty = view.size() == 0;
  TESSERA_CHECK(is_empty || view.shape[last] == 1 || view.strides[last] == 1,
                fmt::format("{} has gaps in its rows", to_string(view)));
  const Dims row_major = row_major_strides(result.shape);
  result.strides[last] = 1;
  for (int i = 0; i < last; ++i) {
    const bool counts = !is_empty && view.shape[i] > 1;
    result.strides[i] = counts ? in_new(view.strides[i]) : row_major[i];
  }
  return result;
}

}  // namespace tessera::kernels
