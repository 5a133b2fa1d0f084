#pragma once
// Requirements of the attention family beyond the notation of signatures.

#include <string_view>

#include "kernels/signature/call.h"

namespace tessera::kernels::attention {

/// Extents of heads. Errors: unsupported.
void require_widths(const Call& c, std::string_view values);
/// Scale and cap. Errors: argument.
void require_factors(const Call& c);
/// Both, and what the forward ops do not have yet.
void require_forward(const Call& c);

/// The scale of a call: its parameter, else dk^-0.5.
double scale_of(const Call& c);
/// The factor of f32 scores before the exponential of base 2: scale * log2 e, in double.
double factor_of(const Call& c);

}  // namespace tessera::kernels::attention
