#pragma once
// The widest access to the tensors of a call.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>

#include "kernels/call_types.h"

namespace tessera::kernels {

/// The alignment in bytes that all these tensors have, at most 16. Unallocated memory counts as 16. A tensor without
/// elements may have any address: it counts as aligned to its elements.
inline int32_t common_alignment(std::initializer_list<TensorView> tensors) {
  int64_t alignment = 16;
  for (const TensorView& tensor : tensors) {
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data));
    alignment =
        std::gcd(alignment, std::max<int64_t>(std::gcd(int64_t{16}, address), bytes(tensor.dtype)));
  }
  return static_cast<int32_t>(alignment);
}

/// The alignment of those of the named tensors that are present.
///
/// Example: s.align = common_alignment(tensors, {"x", "out"});
inline int32_t common_alignment(const Tensors& tensors, std::initializer_list<const char*> names) {
  int32_t alignment = 16;
  for (const char* name : names) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) alignment = std::gcd(alignment, common_alignment({found->second}));
  }
  return alignment;
}

/// The stride of a dimension before the last. A single row reports the stride that several rows would
/// have, if possible, so that it takes the same kernel.
inline int64_t step(const TensorView& view, int dim) {
  const int64_t inner = view.shape[dim + 1] * view.strides[dim + 1];
  const bool counts = view.shape[dim] > 1 || view.strides[dim] >= inner;
  return counts ? view.strides[dim] : inner;
}

/// The most elements, at most `most`, of an access that begins at any multiple of them in a row of
/// the view.
inline int64_t common_vector(const TensorView& view, int64_t most) {
  const int64_t size = bytes(view.dtype);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data));
  int64_t vector = std::max<int64_t>(std::gcd(most * size, address) / size, 1);
  for (int i = 0; i + 1 < view.rank(); ++i) {
    vector = std::gcd(vector, step(view, i));
  }
  return vector;
}

}  // namespace tessera::kernels
