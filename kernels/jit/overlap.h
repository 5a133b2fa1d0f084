#pragma once
// Whether tensors share elements or bytes.

#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

/// True if no two index tuples address one element: in order of stride, each stride exceeds the
/// span of the smaller ones. May return false for exotic strides that do not overlap.
bool self_disjoint(const TensorView& view);

/// True if the two views certainly share no byte. Recognises rows of one pitch that hold the two
/// side by side. May return false for exotic interleavings.
bool disjoint(const TensorView& a, const TensorView& b);

}  // namespace tessera::kernels
