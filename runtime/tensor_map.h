#pragma once
// Tensor maps: how the copy engine of sm_90 and later sees a tensor of a call.

#include <cstdint>

#include "dsl/base/api.h"
#include "dsl/base/kernel_source.h"
#include "dsl/base/tensor_view.h"
#include "runtime/launch.h"

namespace tessera::runtime {

/// The value of a parameter that is a tensor map.
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};

/// The map that a parameter of `kernel` asks for, of `view`: the tensor of that call. Tensors without elements
/// get a map of one element that no box contains, as does TensorMapParam::kNoTensor, for which `view` is empty. About 50 ns; no allocation.
///
/// Errors: argument, naming the tensor and the dimension, for extents above 2^32, a rank other than the box's,
///         strides that are no multiple of 16 bytes or not below 2^40, or memory that does not begin at a
///         multiple of 16 bytes; unsupported, if the driver has no tensor maps; driver, if it refuses this one.
/// Example: TensorMap map = encode_tensor_map(kernel, kernel.image->params.back(), view);
TESSERA_API TensorMap encode_tensor_map(const LoadedKernel& kernel, const KernelParam& param,
                                        const TensorView& view);

}  // namespace tessera::runtime
