#pragma once
// Recordings: which kernels a program needed, each as one line of JSON that holds all it takes to
// compile it for any target. What TESSERA_RECORD writes and `tessera compile --specs` reads. A
// recording is code that another program has written: in a bundle its text stands for its Spec, in
// the cache of this machine only for itself.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/image.h"
#include "runtime/request.h"

namespace tessera::runtime {

struct RecordedKernel {
  std::optional<std::string> spec;
  std::string code;    // identity of the generator
  const Image& image;  // its text, parameters and launch facts are recorded, its cubin is not
};

/// Appends a line, in one write; one that did not fit is taken back. Links are not followed. Returns
/// an error text or "".
std::string append_record(const std::string& path, const RecordedKernel& kernel);

/// A line as a request. Throws an argument error naming `place` ("specs.jsonl:3") and what is wrong.
KernelRequest parse_record(std::string_view line, const std::string& place);

}  // namespace tessera::runtime
