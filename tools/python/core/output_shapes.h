#pragma once
// What the outputs of a call look like, without tensors: for fake ones.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds `outputs` and its class to the module.
void add_output_shapes(nb::module_& module);

}  // namespace tessera::python
