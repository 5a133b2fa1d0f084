#pragma once
// Parts of the calls of attention_bwd and attention_varlen_bwd.

#include "kernels/signature/launches.h"

namespace tessera::kernels::attention {

/// Adds the kernels of a backward op.
void add_backward(const Call& c, Launches& go);

/// Elements of f32 that its kernels hand on.
int64_t backward_elements(const Call& c);

/// Checks a backward op beyond the notation. Errors: argument, unsupported.
void require_backward(const Call& c);

}  // namespace tessera::kernels::attention
