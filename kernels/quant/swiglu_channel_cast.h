#pragma once
// The kernel of swiglu_forward_and_per_channel_cast and of the same with a transposed result.

#include "kernels/signature/launches.h"

namespace tessera::kernels {

/// Adds it for a call: x, out, out_sf. A result [H, T] is `transposed`.
void add_swiglu_channel_cast(const Call& c, Launches& go, bool transposed);

}  // namespace tessera::kernels
