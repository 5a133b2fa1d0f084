#pragma once
// Belongs to the whole process: options, counters, warm-up, the program.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Adds the functions of tessera._process and of `python -m tessera` to the module.
void add_process(nb::module_& module);

}  // namespace tessera::python
