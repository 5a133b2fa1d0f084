#pragma once
// Types of op arguments other than tensors and numbers.

#include <cstdint>
#include <string_view>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

/// CUDA stream of the caller. null is the legacy default stream, which a call must request. Ignored
/// for CPU tensors.
using Stream = void*;

/// The memory layout of the scales of a quantised matrix; kernels/signature/scale_layout.h has shapes and strides.
enum class SfLayout : uint8_t { row_major, col_major_tma, packed_ue8m0 };
/// "row_major", ...
TESSERA_API std::string_view name(SfLayout layout);

}  // namespace tessera::kernels
