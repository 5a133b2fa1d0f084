#pragma once
// pre_big_fuse as the chain of the ops that it fuses.

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// norm_fn_fwd, pre_split_mixes_fwd, sinkhorn_fwd and pre_apply_mix_fwd on the inputs and parameters
/// of a pre_big_fuse call: its three outputs.
HostTensors run_pre_chain(const HostTensors& inputs, const kernels::Params& params, Device device);

/// Runs all cases of pre_big_fuse as one op and as the chain; what differs in a bit fails.
CaseReport compare_with_pre_chain(const std::vector<OpCase>& cases, Device device);

}  // namespace tessera::test
