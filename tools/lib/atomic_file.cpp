#include "tools/lib/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "dsl/base/error.h"

namespace tessera::tools {
namespace {
constexpr size_t kChunk = size_t{64} << 20;  // one write() moves at most 2 GiB
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  if (path.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "the name of the file to write is empty",
                 .expected = "a file name",
                 .got = "''"});
  }
  std::error_code ignored;
  const std::filesystem::path resolved = std::filesystem::canonical(path, ignored);
  if (!ignored) target_ = resolved.string();
  struct stat info {};
  if (::stat(target_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw Error({.kind = ErrorKind::argument,
                 .what = fmt::format("cannot write '{}'", path_),
                 .argument = path_,
                 .expected = "a regular file, or a name that is free",
                 .got = S_ISDIR(info.st_mode) ? "a directory" : "a special file"});
  }
  const std::filesystem::path target(target_);
  std::random_device random;
  for (int attempt = 0; attempt < 8 && descriptor_ < 0; ++attempt) {
    const std::string name = fmt::format(".{}.{:08x}.tmp", target.filename().string(), random());
    temporary_ = (target.parent_path() / name).string();
    descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kChunk));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("flush");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename onto");
  ::close(descriptor_);
  descriptor_ = -1;
  // The rename itself is durable once the folder is flushed; a folder that cannot be opened is no
  // reason to fail.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const int parent = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (parent < 0) return;
  ::fsync(parent);
  ::close(parent);
}

void AtomicFile::fail(std::string_view action) const {
  const int code = errno;
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("cannot {} '{}'", action, path_),
               .argument = path_,
               .got = std::strerror(code)});
}

}  // namespace tessera::tools
