#pragma once
// The inputs of a run of sub-layers and the streams after each: the loop of its parts.

#include "kernels/call_types.h"
#include "tests/reference/ops.h"

namespace tessera::reference {

/// R_0 is the initial residual. For each layer l, layer_input_list.l = pre_apply_mix_fwd(R_l,
/// pre_mix_list.l); where it has an output, residual_list.l = R_(l+1) = post_fwd(layer_output_list.l, R_l,
/// post_mix_list.l, comb_mix_list.l).
///
/// Example: one layer without an output gives layer_input_list.0 alone.
test::HostTensors multilayer_recompute(const test::HostTensors& inputs);

}  // namespace tessera::reference
