#pragma once
// The work before a sub-layer with the norm of its input, and all work between two sub-layers, by definition.

#include "tests/reference/ops.h"

namespace tessera::reference {

/// pre_big_fuse; norm_fwd of the bf16 layer_input, or norm_fwd_and_per_token_cast where format is e4m3. Tensors and parameters
/// under the names of the op.
test::HostTensors pre_big_fuse_and_norm(const test::HostTensors& in, const kernels::Params& params);

/// post_fwd; pre_big_fuse_and_norm of its bf16 result. Tensors and parameters under the names of the op.
test::HostTensors mhc_boundary(const test::HostTensors& in, const kernels::Params& params);

}  // namespace tessera::reference
