#include "tools/lib/files/private_folder.h"

#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "dsl/base/error.h"

namespace tessera::tools {

PrivateFolder::PrivateFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  path_ = (parent / "tessera-XXXXXX").string();
  if (!error && ::mkdtemp(path_.data()) != nullptr) return;
  throw Error({.kind = ErrorKind::load,
               .what = "cannot make a folder for temporary files",
               .expected = "TMPDIR, or /tmp, as a folder that can be written",
               .got = error ? error.message() : std::strerror(errno)});
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera::tools
