#include "dsl/layout/reject.h"

#include <fmt/format.h>

#include <limits>

#include "dsl/base/error.h"

namespace tessera::layout {

void reject(const char* op, const char* argument, const std::string& what, std::string expected,
            std::string got) {
  throw Error({.kind = ErrorKind::program,
               .op = op,
               .what = fmt::format("argument '{}' {}", argument, what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got)});
}

int64_t check_shape(const char* op, const std::vector<int64_t>& shape) {
  constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();
  int64_t total = 1;
  for (const int64_t extent : shape) {
    if (extent < 1)
      reject(op, "shape", "has an empty axis", "extents from 1 up", shape_text(shape));
    if (extent > kMaxElements / total) {
      reject(op, "shape", "is too large for a tile", "fewer than 2^31 elements", shape_text(shape));
    }
    total *= extent;
  }
  return total;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "()" : fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace tessera::layout
