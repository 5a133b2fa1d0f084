#pragma once
// The facts about an op from which write_ops.py writes its function, types and documentation.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds `table_json` and `op_texts` to the module.
void add_op_texts(nb::module_& module);

}  // namespace tessera::python
