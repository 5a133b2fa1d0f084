#pragma once
// Runs an op of the registry as a careful caller would: outputs are allocated unset, with guards
// around them, and everything that the op must not touch is checked afterwards.

#include <stdexcept>
#include <string>

#include "kernels/call_types.h"
#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::kernels {
struct OpInfo;
}

namespace tessera::test {

/// The op wrote outside of its outputs, changed an input or left padding that is not zero.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Outputs of one call on `device`, parameters and names checked as the program checks them, back
/// in host memory. Throws what the op throws, or Violation.
///
/// Example: run_op(kernels::find_op("transpose"), {{"x", x}}, {}, Device::cpu()).at("out")
HostTensors run_op(const kernels::OpInfo& op, const HostTensors& inputs,
                   const kernels::Params& given, Device device);

/// run_op on one device, traps on, in the form of a reference.
reference::Runner op_runner(const std::string& op, Device device);

/// True if the registry has the op.
bool op_exists(const std::string& op);

}  // namespace tessera::test
