#pragma once
// Tensors of both kernels of gated_delta_fwd.

#include <string>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::linear {

/// An input whose last dimension is contiguous; the strides of the others are multiples of `width` elements, and so is
/// its address.
dsl::Ref rows_of(dsl::Builder& k, const std::string& name, DType dtype,
                 const std::vector<dsl::Arg>& shape, int64_t width);

/// The tokens of a request, by `lengths`; the call reports a number below 0 or above `tokens`.
dsl::Value length_of(dsl::Builder& k, const dsl::Ref& lengths, const dsl::Value& request,
                     const dsl::Value& tokens);

}  // namespace tessera::kernels::linear
