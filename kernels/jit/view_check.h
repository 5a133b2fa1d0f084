#pragma once
// Checks that hold for every tensor of every call. ArgumentBinder and ArgCheck share the messages.

#include <cstdint>
#include <string_view>

#include "dsl/base/error.h"
#include "dsl/base/tensor_view.h"

namespace tessera::kernels {

enum class Use : uint8_t { read, written };

/// Throws an argument error for an impossible view (see find_defect), or for a read-only view that is
/// written; `loc` is its declaration. Must run before all other checks of a caller's view: a rank of
/// 200 has no extents.
void check_view(std::string_view op, std::string_view name, const TensorView& view, Use use,
                SourceLoc loc = {});

/// The error of an output that shares bytes with another tensor of the call.
ErrorFields shared_memory_error(std::string_view op, std::string_view output,
                                const TensorView& output_memory, std::string_view other,
                                const TensorView& other_memory);

}  // namespace tessera::kernels
