#include "runtime/nvrtc/reproduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <system_error>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

std::string keep_reproduction(const FailedCompile& failed) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return "";
  std::string path = (parent / "tessera-bug-XXXXXX").string();
  if (!mkdtemp(path.data())) return "";
  const Folder folder = open_output_folder(path);
  const auto write = [&](const std::string& name, const std::string& bytes) {
    return folder.fd && replace_file(folder, name, bytes).empty();
  };
  const std::string how = fmt::format("{}\n{}\n{}\n", failed.compiler, failed.identity,
                                      fmt::join(failed.options, "\n"));
  const bool written =
      write(failed.file, failed.text) && write("log.txt", failed.log) && write("compile.txt", how);
  return written ? path : "";
}

}  // namespace tessera::runtime
