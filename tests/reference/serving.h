#pragma once
// The references of the serving family under the names and parameters of the op registry.

#include "tests/reference/ops.h"

namespace tessera::reference {

/// The reference of an op of the family, or null if it is none.
Runner serving_runner(const std::string& op);

}  // namespace tessera::reference
