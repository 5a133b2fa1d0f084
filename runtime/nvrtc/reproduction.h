#pragma once
// Files for a bug report: all inputs of a compile that should have succeeded.

#include <string>
#include <vector>

namespace tessera::runtime {

struct FailedCompile {
  std::string file;  // "scale.cu"
  std::string text;  // self-contained, device functions included
  std::vector<std::string> options;
  std::string compiler, identity;
  std::string log;
};

/// Writes the text, the log and "compile.txt" (options and versions) into a new private folder below
/// the system's temporary folder, and returns its path; "" on failure.
std::string keep_reproduction(const FailedCompile& failed);

}  // namespace tessera::runtime
