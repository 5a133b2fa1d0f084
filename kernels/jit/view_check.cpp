#include "kernels/jit/view_check.h"

#include <fmt/format.h>

#include <utility>

namespace tessera::kernels {

void check_view(std::string_view op, std::string_view name, const TensorView& view, Use use,
                SourceLoc loc) {
  if (auto defect = find_defect(view)) {
    throw Error({.kind = ErrorKind::argument,
                 .op = std::string(op),
                 .what = fmt::format("argument '{}' is no possible view", name),
                 .argument = std::string(name),
                 .expected = std::move(defect->expected),
                 .got = std::move(defect->got),
                 .code = "VIEW",
                 .loc = loc});
  }
  if (use == Use::written && view.read_only) {
    throw Error({.kind = ErrorKind::argument,
                 .op = std::string(op),
                 .what = fmt::format("argument '{}' is written, but its memory is constant", name),
                 .argument = std::string(name),
                 .expected = "a view made from a pointer to memory that is not const",
                 .got = to_string(view) + ", read only",
                 .code = "READ_ONLY",
                 .loc = loc});
  }
}

ErrorFields shared_memory_error(std::string_view op, std::string_view output,
                                const TensorView& output_memory, std::string_view other,
                                const TensorView& other_memory) {
  return {.kind = ErrorKind::argument,
          .op = std::string(op),
          .what = fmt::format("argument '{}' shares memory with '{}'", output, other),
          .argument = std::string(output),
          .expected = "an output with memory of its own",
          .got = fmt::format("{} of {} bytes at {}, {} of {} bytes at {}", output,
                             output_memory.span_bytes(), fmt::ptr(output_memory.data), other,
                             other_memory.span_bytes(), fmt::ptr(other_memory.data)),
          .code = "OVERLAP"};
}

}  // namespace tessera::kernels
