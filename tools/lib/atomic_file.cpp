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
#include "runtime/no_write_signals.h"

namespace tessera::tools {
namespace {

constexpr size_t kChunk = size_t{64} << 20;  // one write() moves at most 2 GiB
constexpr int kMaxLinks = 40;                // as the kernel has it
constexpr int kMaxNames = 8;
constexpr mode_t kNewFile = 0666;  // less the umask

/// The file that `path` leads to, whether it exists or not.
std::string follow_links(const std::string& path) {
  std::filesystem::path target = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;  // an absolute link replaces the folder
  }
  return target.string();
}

std::string random_name(const std::string& folder) {
  std::random_device random;
  return fmt::format("{}/.tessera-{:08x}.tmp", folder, random());
}

/// The name under which the kernel shows an open file without a name.
std::string name_of(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

/// The error of open() for O_TMPFILE where the file system (or an old kernel) does not have it.
bool has_no_unnamed_files(int error) {
  return error == EOPNOTSUPP || error == EISDIR || error == EINVAL;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, mode_t withheld)
    : path_(path), target_(follow_links(path)), withheld_(withheld) {
  if (path.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "the name of the file to write is empty",
                 .expected = "a file name",
                 .got = "''"});
  }
  struct stat info {};
  const bool exists = ::stat(path_.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) fail("create");  // such as a name that is too long
  if (exists && !S_ISREG(info.st_mode)) {
    throw Error({.kind = ErrorKind::argument,
                 .what = fmt::format("cannot write '{}'", path_),
                 .argument = path_,
                 .expected = "a regular file, or a name that is free",
                 .got = S_ISDIR(info.st_mode) ? "a directory" : "a special file"});
  }
  const std::string parent = std::filesystem::path(target_).parent_path().string();
  folder_ = parent.empty() ? "." : parent;
  descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kNewFile & ~withheld_);
  if (descriptor_ < 0 && !has_no_unnamed_files(errno)) fail("create");
  if (descriptor_ >= 0 && ::access(name_of(descriptor_).c_str(), F_OK) != 0) {
    ::close(descriptor_);  // without /proc nothing could name it later
    descriptor_ = -1;
  }
  if (descriptor_ < 0 && ::access(folder_.c_str(), W_OK | X_OK) != 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) open_named();
  const runtime::NoWriteSignals guard;
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
  if (descriptor_ < 0) open_named();  // an empty file
  keep_permissions();
  if (::fsync(descriptor_) != 0) fail("flush");
  put_in_place();
  ::close(descriptor_);
  descriptor_ = -1;
  // The new name is durable once the folder is flushed; a folder that cannot be opened is no reason
  // to fail.
  const int parent = ::open(folder_.c_str(), O_RDONLY | O_CLOEXEC);
  if (parent < 0) return;
  ::fsync(parent);
  ::close(parent);
}

void AtomicFile::open_named() {
  for (int attempt = 0; attempt < kMaxNames && descriptor_ < 0; ++attempt) {
    std::string name = random_name(folder_);
    descriptor_ =
        ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kNewFile & ~withheld_);
    if (descriptor_ >= 0) temporary_ = std::move(name);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("create");
}

void AtomicFile::keep_permissions() const {
  struct stat before {
  }, now{};
  if (::stat(target_.c_str(), &before) != 0 || ::fstat(descriptor_, &now) != 0) return;
  mode_t mode = before.st_mode & 07777;
  const bool owner_is_kept = before.st_uid == now.st_uid ||
                             ::fchown(descriptor_, before.st_uid, static_cast<gid_t>(-1)) == 0;
  const bool group_is_kept = before.st_gid == now.st_gid ||
                             ::fchown(descriptor_, static_cast<uid_t>(-1), before.st_gid) == 0;
  if (!owner_is_kept || !group_is_kept) mode &= 0777;  // no set-id bits for somebody else
  // Another group gets no more than everybody.
  if (!group_is_kept) mode = (mode & 0707) | (mode & 07) << 3;
  mode &= ~withheld_;
  if (mode != (now.st_mode & 07777) && ::fchmod(descriptor_, mode) != 0) fail("set the mode of");
}

void AtomicFile::put_in_place() {
  if (temporary_.empty()) {
    const std::string unnamed = name_of(descriptor_);
    const auto link_to = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link_to(target_)) return;
    // A link never replaces a file, so it gets a name of its own, which is renamed at once.
    for (int attempt = 0; attempt < kMaxNames && temporary_.empty() && errno == EEXIST; ++attempt) {
      std::string name = random_name(folder_);
      if (link_to(name)) temporary_ = std::move(name);
    }
    if (temporary_.empty()) fail("create");
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("replace");
  temporary_.clear();
}

void AtomicFile::fail(std::string_view action) const {
  const int code = errno;
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("cannot {} '{}'", action, path_),
               .argument = path_,
               .got = std::strerror(code)});
}

}  // namespace tessera::tools
