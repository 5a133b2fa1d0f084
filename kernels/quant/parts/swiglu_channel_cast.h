#pragma once
// The kernel of swiglu_forward_and_per_channel_cast and of its transposed form.

#include "kernels/signature/launches.h"

namespace tessera::kernels {

/// Adds the kernel of a call with x, out, out_sf. out is [H, T] if `transposed`.
void add_swiglu_channel_cast(const Call& c, Launches& go, bool transposed);

}  // namespace tessera::kernels
