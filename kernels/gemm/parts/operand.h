#pragma once
// Matrix operands of the gemm family as their kernels declare them.

#include <algorithm>
#include <numeric>

#include "kernels/views/alignment.h"

namespace tessera::kernels::gemm {

/// A matrix whose elements lie side by side along one of its dimensions.
struct Operand {
  int32_t by_column = 0;  // 1: side by side along the first dimension
  int32_t vector = 1;     // elements that addresses and steps between rows are multiples of
};

/// The largest divisor of `most` that an extent may be declared a multiple of.
inline int32_t multiple_of(int64_t extent, int64_t most) {
  return static_cast<int32_t>(std::gcd(extent, most));
}

/// The matrix with its contiguous dimension last.
inline TensorView contiguous_last(TensorView view, const Operand& operand) {
  if (operand.by_column != 0) {
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
  }
  view.strides[0] = step(view, 0);
  view.strides[1] = 1;
  return view;
}

/// The operand that a view of two dimensions is. Vectors have at most 16 bytes.
inline Operand operand_of(const TensorView& view) {
  Operand operand;
  operand.by_column = view.shape[1] > 1 && view.strides[1] != 1 ? 1 : 0;
  const int64_t most = 16 / bytes(view.dtype);
  operand.vector = static_cast<int32_t>(common_vector(contiguous_last(view, operand), most));
  return operand;
}

}  // namespace tessera::kernels::gemm
