#include "runtime/build_tree.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tessera::runtime {

std::string dependencies_of_build_tree() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : dependencies_of_build_tree(program.string());
}

std::string dependencies_of_build_tree(const std::string& path) {
  constexpr std::string_view kEntry = "tessera_SOURCE_DIR:STATIC=";
  std::filesystem::path folder = path;
  for (int level = 0; level < 2; ++level) {
    folder = folder.parent_path();
    std::ifstream cache(folder / "CMakeCache.txt");
    for (std::string line; std::getline(cache, line);) {
      if (line.compare(0, kEntry.size(), kEntry) != 0) continue;
      return line.substr(kEntry.size()) + "/.deps";
    }
  }
  return "";
}

}  // namespace tessera::runtime
