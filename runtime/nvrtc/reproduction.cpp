#include "runtime/nvrtc/reproduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <system_error>

namespace tessera::runtime {

std::string keep_reproduction(const FailedCompile& failed) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return "";
  std::string folder = (parent / "tessera-bug-XXXXXX").string();
  if (!mkdtemp(folder.data())) return "";
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream file(folder + "/" + name, std::ios::binary);
    file << bytes;
    return static_cast<bool>(file.flush());
  };
  const std::string how = fmt::format("{}\n{}\n{}\n", failed.compiler, failed.identity,
                                      fmt::join(failed.options, "\n"));
  const bool written =
      write(failed.file, failed.text) && write("log.txt", failed.log) && write("compile.txt", how);
  return written ? folder : "";
}

}  // namespace tessera::runtime
