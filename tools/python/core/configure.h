#pragma once
// tessera.configure: options of the process's runtime from Python values.

#include "tools/python/core/python.h"

namespace tessera::python {

/// Sets options by their names in runtime/options.h. All values are checked before one is set.
///
/// Errors: argument, naming the option: NAME for an unknown one, TYPE and VALUE for its value; argument, once the runtime is
///         in use.
void configure(const nb::dict& options);

}  // namespace tessera::python
