#pragma once
// What write_ops.py needs to know of an op to write its function, types and documentation.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds `table_json` and `op_texts` to the module.
void add_op_texts(nb::module_& module);

}  // namespace tessera::python
