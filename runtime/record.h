#pragma once
// Recordings: the kernels that a program needed, one line of JSON each, with all that it takes to
// compile them for any target. TESSERA_RECORD writes them, `tessera compile --specs` reads them. A
// recording is code from another program: in a bundle its text represents its Spec, in the cache of
// this machine only itself.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/image.h"
#include "runtime/request.h"

namespace tessera::runtime {

struct RecordedKernel {
  std::optional<std::string> spec;
  std::string code;    // identity of the code generator
  const Image& image;  // its text, parameters and launch facts are recorded, not its cubin
};

/// Appends a line in one write, and removes a partial one. Does not follow links. Returns an error
/// text or "".
std::string append_record(const std::string& path, const RecordedKernel& kernel);

/// Parses a line into a request. Throws an argument error naming `place` ("specs.jsonl:3") and the
/// problem.
KernelRequest parse_record(std::string_view line, const std::string& place);

}  // namespace tessera::runtime
