#pragma once
// Shapes and dtypes of the outputs of a call, without tensors: for fake ones.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds `outputs` and its class to the module.
void add_output_shapes(nb::module_& module);

}  // namespace tessera::python
