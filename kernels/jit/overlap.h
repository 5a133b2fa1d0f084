#pragma once
// Which elements and bytes tensors share.

#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

/// True if no two index tuples share an element: sorted by stride, each stride clears what lies
/// inside it. May answer false for exotic strides that happen not to meet.
bool self_disjoint(const TensorView& view);

/// True if the two views certainly share no byte. Rows of one pitch that hold the two side by side
/// are recognised; may answer false for exotic interleavings.
bool disjoint(const TensorView& a, const TensorView& b);

}  // namespace tessera::kernels
