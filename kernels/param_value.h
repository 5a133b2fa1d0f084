#pragma once
// The value of an op's parameter, for the program, files and rules of signatures.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::kernels {

/// Absent, int, float, bool, enum word, tuple.
using ParamValue =
    std::variant<std::monostate, int64_t, double, bool, std::string, std::vector<int64_t>>;

/// The text of the command line: "128", "1e-06", "true", "row_major", "128,128", "none".
TESSERA_API std::string to_string(const ParamValue& value);

}  // namespace tessera::kernels
