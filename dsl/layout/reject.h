#pragma once
// Errors of layout functions for wrong arguments.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::layout {

/// Throws an Error of kind `program`: "tessera: <op>: argument '<argument>' <what>".
[[noreturn]] void reject(const char* op, const char* argument, const std::string& what,
                         std::string expected, std::string got);

/// Requires extents of at least 1 and fewer than 2^31 elements in all; returns their product.
int64_t check_shape(const char* op, const std::vector<int64_t>& shape);

/// "64 x 128"; "()" for rank 0.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace tessera::layout
