#pragma once
// Memory of our own that other libraries take over by DLPack.

#include "kernels/call_types.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds the class Buffer to the module.
void add_buffer(nb::module_& module);

/// A new Buffer of an output's dtype, shape, strides and storage; zeros if it starts so. It has
/// `__dlpack__` and `__dlpack_device__`.
nb::object make_buffer(const kernels::OutputInfo& output, Device device);

}  // namespace tessera::python
