#pragma once
// Other views of the memory of an argument. A kernel that takes a tensor in another shape or as another
// dtype gets it from here: a view that an op makes of the address alone loses the strides of the caller.

#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

/// The same elements, in row-major order, in another shape. An absent tensor stays absent.
///
/// Errors: internal if the strides need a copy, or the shape has another number of elements.
/// Example: reshaped(x, {rows, 2, hidden})   // x [rows, 2 * hidden], rows any distance apart
TensorView reshaped(const TensorView& view, const Dims& shape);

/// The bytes of each row as elements of another width; the last extent and the other strides change.
///
/// Errors: internal if the elements of a row have gaps, or rows no whole number of such elements.
/// Example: retyped(x, DType::u32)           // i8 [rows, 64] as u32 [rows, 16]
TensorView retyped(const TensorView& view, DType dtype);

}  // namespace tessera::kernels
