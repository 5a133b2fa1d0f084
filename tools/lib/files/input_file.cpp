#include "tools/lib/files/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dsl/base/error.h"

namespace tessera::tools {
namespace {

constexpr size_t kReadChunk = size_t{64} << 20;

[[noreturn]] void fail(const std::string& path, std::string what, std::string expected,
                       std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{}: {}", path, what),
               .argument = path,
               .expected = std::move(expected),
               .got = std::move(got)});
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &info) != 0) {
    const std::string reason = std::strerror(errno);
    close();
    fail(path, "cannot be opened", "a readable file", reason);
  }
  if (!S_ISREG(info.st_mode)) {
    close();
    fail(path, "cannot be read", "a regular file",
         S_ISDIR(info.st_mode) ? "a directory" : "a special file");
  }
  size_ = info.st_size;
}

InputFile::~InputFile() {
  close();
}

void InputFile::read(int64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got =
        ::pread(descriptor_, into.data(), std::min(into.size(), kReadChunk), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read", "a readable file", std::strerror(errno));
    if (got == 0) {
      fail(path_, "shrank while it was read", fmt::format("{} bytes", size_),
           fmt::format("{} bytes", offset));
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

void InputFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::string read_text_file(const std::string& path, int64_t most) {
  const InputFile file(path);
  if (file.size() > most) {
    fail(path, "is too long", fmt::format("at most {} bytes", most),
         fmt::format("{} bytes", file.size()));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace tessera::tools
