#pragma once
// The names of the dtypes in numpy (with ml_dtypes) and torch: both use the same words.

#include <optional>
#include <string_view>

#include "dsl/base/dtype.h"

namespace tessera::python {

/// "float8_e4m3fn" of e4m3. Errors: internal, for a dtype that tensors of libraries do not have.
const char* library_name(DType dtype);
/// The dtype of such a name, if it is one.
std::optional<DType> dtype_named(std::string_view name);

}  // namespace tessera::python
