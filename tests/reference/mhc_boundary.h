#pragma once
// The work between two sub-layers, by definition.

#include "tests/reference/ops.h"

namespace tessera::reference {

/// post_fwd; pre_big_fuse of its bf16 result; norm_fwd of the bf16 layer_input, or norm_fwd_and_per_token_cast where format is
/// e4m3. Tensors and parameters under the names of the op.
test::HostTensors mhc_boundary(const test::HostTensors& in, const kernels::Params& params);

}  // namespace tessera::reference
