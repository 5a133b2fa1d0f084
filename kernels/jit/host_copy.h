#pragma once
// Tensors brought to the host, for calls whose result decides what the caller allocates.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "kernels/call_types.h"

namespace tessera::kernels::jit {

/// The elements of a contiguous tensor, once the work before in `stream` is done; none in a call that
/// is only prepared or named.
template <class Element>
std::vector<Element> to_host(const TensorView& tensor, Stream stream);

/// The same as bytes.
std::vector<std::byte> bytes_to_host(const TensorView& tensor, Stream stream);

template <class Element>
std::vector<Element> to_host(const TensorView& tensor, Stream stream) {
  const std::vector<std::byte> raw = bytes_to_host(tensor, stream);
  std::vector<Element> elements(raw.size() / sizeof(Element));
  std::copy(raw.begin(), raw.end(), reinterpret_cast<std::byte*>(elements.data()));
  return elements;
}

}  // namespace tessera::kernels::jit
