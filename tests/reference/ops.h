#pragma once
// The references under the names and parameters of the op registry, so that one test body runs
// either.

#include <functional>
#include <string>

#include "kernels/call_types.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Inputs and parameters of one op to its outputs; in-place tensors stand in both.
using Runner =
    std::function<test::HostTensors(const test::HostTensors& inputs, const kernels::Params&)>;

/// The reference of an op, or null if it has none.
///
/// Example: runner("transpose")({{"x", x}}, {}).at("out")
Runner runner(const std::string& op);

}  // namespace tessera::reference
