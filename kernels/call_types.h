#pragma once
// What a call of an op takes and gives, as the registry passes it.

#include <map>
#include <string>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/op_arguments.h"
#include "kernels/param_value.h"

namespace tessera::kernels {

using Params = std::map<std::string, ParamValue>;
using Tensors = std::map<std::string, TensorView>;

/// What stands for an optional tensor that was not given.
inline bool is_absent(const TensorView& view) {
  return view.data == nullptr && view.rank() == 0;
}

/// What an output of a call looks like.
struct OutputInfo {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  int64_t storage_elements = 0;  // what to allocate; padding belongs to the tensor and is zero
  /// Memory that the op needs during the call only: allocated by the caller like an output, passed
  /// under its name, undefined before and after, and no result.
  bool workspace = false;
  /// The caller fills it with zeros before the call: a new accumulator.
  bool starts_at_zero = false;
};

/// An output without padding.
TESSERA_API OutputInfo row_major_output(std::string name, DType dtype, const Dims& shape);

}  // namespace tessera::kernels
