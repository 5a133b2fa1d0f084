#pragma once
// The inputs and outputs of an op call, as the registry passes them.

#include <map>
#include <string>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/op_arguments.h"
#include "kernels/param_value.h"

namespace tessera::kernels {

using Params = std::map<std::string, ParamValue>;
using Tensors = std::map<std::string, TensorView>;

/// True for the view that represents an absent optional tensor.
inline bool is_absent(const TensorView& view) {
  return view.data == nullptr && view.rank() == 0;
}

/// The description of one output of a call.
struct OutputInfo {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  int64_t storage_elements = 0;  // elements to allocate; padding belongs to the tensor and is zero
  /// Scratch memory of the call, not a result: the caller allocates it like an output and passes it
  /// under its name; its contents are undefined before and after.
  bool workspace = false;
  /// The caller must zero it before the call: a new accumulator.
  bool starts_at_zero = false;
};

/// An output without padding.
TESSERA_API OutputInfo row_major_output(std::string name, DType dtype, const Dims& shape);

}  // namespace tessera::kernels
