#include "runtime/cache/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <thread>
#include <utility>

namespace tessera::runtime {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;
constexpr int kStaleRetries =
    3;  // ESTALE: the file was replaced on a network mount while we looked
constexpr int kMaxSweptFiles = 64;
constexpr time_t kStaleSeconds = 3600;

std::string error_text(int error) {
  return std::strerror(error);
}

bool is_ours(uid_t owner) {
  return owner == geteuid() || owner == 0;
}

bool is_our_group(gid_t group) {
  if (group == getegid()) return true;
  std::array<gid_t, 256> groups{};
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  return count > 0 &&
         std::find(groups.begin(), groups.begin() + count, group) != groups.begin() + count;
}

std::string distrust(const struct stat& info, CacheTrust trust) {
  const bool shared = trust == CacheTrust::group && is_our_group(info.st_gid);
  if (!is_ours(info.st_uid) && !shared) {
    return fmt::format("belongs to another user (uid {})", info.st_uid);
  }
  const mode_t refused = shared ? S_IWOTH : S_IWGRP | S_IWOTH;
  if ((info.st_mode & refused) != 0) {
    return fmt::format("is writable by {}others (mode {:04o})", shared ? "" : "group or ",
                       info.st_mode & 07777);
  }
  return "";
}

Folder judge(int fd, int error, CacheTrust trust) {
  Folder folder;
  folder.trust = trust;
  if (fd < 0) {
    folder.missing = error == ENOENT || error == ESTALE;
    folder.problem = error == ELOOP || error == ENOTDIR
                         ? "is not a directory (links are not followed)"
                         : "cannot be opened: " + error_text(error);
    return folder;
  }
  folder.fd = Descriptor(fd);
  struct stat info = {};
  folder.problem = fstat(fd, &info) == 0 ? distrust(info, trust) : error_text(errno);
  if (!folder.problem.empty()) folder.fd = Descriptor();
  return folder;
}

// The mode given to mkdir is masked by the umask.
void share_with_group(int fd, CacheTrust trust, mode_t mode) {
  if (trust == CacheTrust::group && fd >= 0) static_cast<void>(fchmod(fd, mode));
}

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

void pause_before_retry(int attempt) {
  std::random_device random;
  std::this_thread::sleep_for(std::chrono::milliseconds(attempt + static_cast<int>(random() % 4)));
}

// A folder below `parent`, or at an absolute path.
int open_folder(int parent, const std::string& path) {
  for (int attempt = 0;; ++attempt) {
    const int fd = openat(parent, path.c_str(), kFolderFlags);
    if (fd >= 0 || errno != ESTALE || attempt >= kStaleRetries) return fd;
    pause_before_retry(attempt);
  }
}

// mkdir -p; a folder that exists is success, also when another process was faster.
int make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    if (mkdir(path.substr(0, end).c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS &&
        errno != EACCES) {
      return errno;
    }
  }
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

std::string read_all(int fd, size_t size, std::string& bytes) {
  bytes.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(fd, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error_text(errno);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return "";
}

std::string write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error_text(errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return fsync(fd) == 0 ? "" : error_text(errno);
}

// Process ids repeat across hosts and containers, hence host name and 128 random bits.
std::string staging_name() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::random_device random;
  return fmt::format("{}-{}-{:08x}{:08x}{:08x}{:08x}", host.data(), getpid(), random(), random(),
                     random(), random());
}

bool has_no_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
}

// First publisher wins and a file that somebody has open is never swapped; rename where links are
// not supported.
std::string move_into_place(int from, const std::string& staged, int to, const std::string& name) {
  if (linkat(from, staged.c_str(), to, name.c_str(), 0) == 0 || errno == EEXIST) {
    unlinkat(from, staged.c_str(), 0);
    return "";
  }
  if (has_no_links(errno) && renameat(from, staged.c_str(), to, name.c_str()) == 0) return "";
  const std::string problem = error_text(errno);
  unlinkat(from, staged.c_str(), 0);
  return problem;
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) close(value_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

Folder open_root(const std::string& given, Missing missing, CacheTrust trust) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();  // "link/" would follow the link
  if (path.empty() || path.front() != '/') {
    Folder folder;
    folder.problem = "is not an absolute path";
    return folder;
  }
  int fd = open_folder(AT_FDCWD, path);
  if (fd < 0 && errno == ENOENT && missing == Missing::create) {
    if (const int error = make_folders(path)) return judge(-1, error, trust);
    fd = open_folder(AT_FDCWD, path);
    share_with_group(fd, trust, 0770);
  }
  return judge(fd, errno, trust);
}

Folder open_inside(const Folder& parent, const std::string& name, Missing missing) {
  int fd = open_folder(parent.fd.get(), name);
  if (fd < 0 && errno == ENOENT && missing == Missing::create) {
    const bool made = mkdirat(parent.fd.get(), name.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return judge(-1, errno, parent.trust);
    fd = open_folder(parent.fd.get(), name);
    if (made) share_with_group(fd, parent.trust, 0770);
  }
  return judge(fd, errno, parent.trust);
}

Descriptor open_file(const std::string& path, CacheTrust trust, std::string& problem) {
  Descriptor fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info = {};
  if (!fd || fstat(fd.get(), &info) != 0) {
    problem = errno == ELOOP ? "is a symbolic link" : "cannot be opened: " + error_text(errno);
  } else if (!S_ISREG(info.st_mode)) {
    problem = "is not a regular file";
  } else {
    problem = distrust(info, trust);
  }
  return problem.empty() ? std::move(fd) : Descriptor();
}

bool is_on_network(const std::string& path) {
  constexpr std::array<int64_t, 7> kMagics = {0x6969,       // NFS
                                              0x0BD00BD0,   // Lustre
                                              0x47504653,   // GPFS
                                              0xFF534D42,   // CIFS
                                              0xFE534D42,   // SMB2
                                              0x65735546,   // FUSE
                                              0x00C36400};  // Ceph
  std::string existing = path;
  struct statfs info = {};
  while (statfs(existing.c_str(), &info) != 0) {
    const size_t slash = existing.rfind('/');
    if (slash == std::string::npos || slash == 0) return false;
    existing.resize(slash);
  }
  const int64_t magic = static_cast<int64_t>(info.f_type) & 0xFFFFFFFF;
  return std::find(kMagics.begin(), kMagics.end(), magic) != kMagics.end();
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  const int fd = openat(folder.fd.get(), ".", kFolderFlags);
  if (fd < 0) return names;
  const auto close_stream = [](DIR* stream) { closedir(stream); };
  const std::unique_ptr<DIR, decltype(close_stream)> stream(fdopendir(fd), close_stream);
  if (!stream) {
    close(fd);
    return names;
  }
  while (const dirent* item = readdir(stream.get())) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

FileBytes read_file(const Folder& folder, const std::string& name) {
  FileBytes file;
  for (int attempt = 0;; ++attempt) {
    const auto give_up = [&](int error) {
      file.missing = error == ENOENT || error == ESTALE;
      file.problem = error == ELOOP ? "is a symbolic link" : error_text(error);
      return attempt >= kStaleRetries || error != ESTALE;
    };
    if (fstatat(folder.fd.get(), name.c_str(), &file.seen, AT_SYMLINK_NOFOLLOW) != 0) {
      if (give_up(errno)) return file;
      pause_before_retry(attempt);
      continue;
    }
    // O_NONBLOCK: opening a pipe must not wait for its writer.
    const Descriptor fd(
        openat(folder.fd.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info = {};
    if (!fd || fstat(fd.get(), &info) != 0) {
      if (give_up(errno)) return file;
      pause_before_retry(attempt);
      continue;
    }
    if (!S_ISREG(info.st_mode)) return file.problem = "is not a regular file", std::move(file);
    file.problem = distrust(info, folder.trust);
    if (!file.problem.empty()) return file;
    if (info.st_size > kMaxFileBytes) return file.problem = "is too large", std::move(file);
    std::string bytes;
    file.problem = read_all(fd.get(), static_cast<size_t>(info.st_size), bytes);
    if (file.problem.empty()) file.bytes = std::move(bytes);
    return file;
  }
}

std::string publish_file(const Folder& staging, const Folder& folder, const std::string& name,
                         std::string_view bytes) {
  const std::string staged = staging_name();
  {
    const Descriptor fd(openat(staging.fd.get(), staged.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return error_text(errno);
    share_with_group(fd.get(), staging.trust, 0640);
    const std::string problem = write_all(fd.get(), bytes);
    if (!problem.empty()) {
      unlinkat(staging.fd.get(), staged.c_str(), 0);
      return problem;
    }
  }
  const std::string problem = move_into_place(staging.fd.get(), staged, folder.fd.get(), name);
  // Some file systems cannot sync a folder; the entry is verified when read, so this may fail.
  if (problem.empty()) static_cast<void>(fsync(folder.fd.get()));
  return problem;
}

bool remove_if_unchanged(const Folder& folder, const std::string& name, const struct stat& seen) {
  struct stat now = {};
  if (fstatat(folder.fd.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const bool same = now.st_ino == seen.st_ino && now.st_dev == seen.st_dev &&
                    now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
  const int flags = S_ISDIR(now.st_mode) ? AT_REMOVEDIR : 0;
  return same && unlinkat(folder.fd.get(), name.c_str(), flags) == 0;
}

void sweep_stale_files(const Folder& staging) {
  int swept = 0;
  for (const std::string& name : names_in(staging)) {
    struct stat info = {};
    if (fstatat(staging.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const time_t age = time(nullptr) - info.st_mtim.tv_sec;  // a wrong clock makes it negative
    if (!S_ISREG(info.st_mode) || std::abs(age) < kStaleSeconds) continue;
    unlinkat(staging.fd.get(), name.c_str(), 0);
    if (++swept == kMaxSweptFiles) break;
  }
}

}  // namespace tessera::runtime
