#pragma once
// What must be true of a tensor of any call, whatever the kernel makes of it. The words of Plan and of
// ArgCheck.

#include <cstdint>
#include <string_view>

#include "dsl/base/error.h"
#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

enum class Use : uint8_t { read, written };

/// Throws an argument error for a view that cannot be (see find_defect), or that is written and
/// read-only; `loc` is where it is declared. The first thing to ask of what a caller hands over: a rank
/// of 200 has no extents.
void check_view(std::string_view op, std::string_view name, const TensorView& view, Use use,
                SourceLoc loc = {});

/// The error of an output that shares bytes with another tensor of the call.
ErrorFields shared_memory_error(std::string_view op, std::string_view output,
                                const TensorView& output_memory, std::string_view other,
                                const TensorView& other_memory);

}  // namespace tessera::kernels
