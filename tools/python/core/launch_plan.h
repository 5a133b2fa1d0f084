#pragma once
// Checked calls that are launched again on other tensors.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds `plan` and its class to the module.
void add_launch_plan(nb::module_& module);

}  // namespace tessera::python
