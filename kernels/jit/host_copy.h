#pragma once
// Copies tensors to the host, for calls whose results determine what the caller allocates.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "kernels/call_types.h"

namespace tessera::kernels::jit {

/// Returns the elements of a contiguous tensor after the earlier work in `stream`; none in a call
/// that is only prepared or named.
template <class Element>
std::vector<Element> to_host(const TensorView& tensor, Stream stream);

/// Returns the same as bytes.
std::vector<std::byte> bytes_to_host(const TensorView& tensor, Stream stream);

template <class Element>
std::vector<Element> to_host(const TensorView& tensor, Stream stream) {
  const std::vector<std::byte> raw = bytes_to_host(tensor, stream);
  std::vector<Element> elements(raw.size() / sizeof(Element));
  std::copy(raw.begin(), raw.end(), reinterpret_cast<std::byte*>(elements.data()));
  return elements;
}

}  // namespace tessera::kernels::jit
