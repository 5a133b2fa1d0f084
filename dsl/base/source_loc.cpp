#include "dsl/base/source_loc.h"

#include <fmt/format.h>

#include <fstream>

namespace tessera {

std::string to_string(SourceLoc loc) {
  if (!loc.known()) return "unknown location";
  std::string path = loc.file;
  return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), loc.line);
}

std::string excerpt(SourceLoc loc) {
  if (!loc.known()) return {};
  std::ifstream file(loc.file);
  std::string line;
  for (int i = 0; i < loc.line; ++i) {
    if (!std::getline(file, line)) return {};
  }
  const auto first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return fmt::format("    {}\n    ^\n", line.substr(first));
}

}  // namespace tessera
