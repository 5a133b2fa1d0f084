#pragma once
// What a report of our own bug needs: everything that went into a compile which should have worked.

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

/// Writes the text, the log and "compile.txt" (options and versions) into a new private folder of the
/// system's folder for temporary files, and returns its path; empty if that is not possible.
std::string keep_reproduction(const FailedCompile& failed);

}  // namespace tessera::runtime
