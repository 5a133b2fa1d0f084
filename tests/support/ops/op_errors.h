#pragma once
// The errors of bad calls of an op.

#include <string>

#include "kernels/call_types.h"
#include "tests/support/host_tensor.h"

namespace tessera::kernels {
struct OpInfo;
}

namespace tessera::test {

/// The text of the Error that a call gets before it allocates outputs: from check_params,
/// check_tensor_names or OpInfo::outputs. "no error" if there is none.
std::string outputs_error(const std::string& op, const HostTensors& inputs,
                          const kernels::Params& params);
/// The same of OpInfo::run, which must throw before it writes. Safe on CPU views of any memory.
std::string run_error(const std::string& op, const kernels::Tensors& tensors,
                      const kernels::Params& params);

}  // namespace tessera::test
