#pragma once
// The compositions by definition: their parts in a row.

#include <functional>
#include <string>

#include "tests/reference/ops.h"

namespace tessera::reference {

/// engram_fwd, engram_bwd, mhc_pre_fwd, mhc_pre_bwd, mhc_head_fwd or mhc_head_bwd.
bool is_composition(const std::string& op);

/// The outputs of a composition as `part` runs the ops that it is made of: references, or the ops
/// themselves.
///
/// Example: compose("mhc_pre_fwd", inputs, {}, runner).at("layer_input")
test::HostTensors compose(const std::string& op, const test::HostTensors& inputs,
                          const kernels::Params& params,
                          const std::function<Runner(const std::string&)>& part);

}  // namespace tessera::reference
