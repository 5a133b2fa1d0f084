// Threats and how each step meets them:
//
//   a folder is replaced between check and use    it is opened once, without following a link, and checked by its
//                                                 descriptor; files are opened relative to the descriptor
//   another user may write                        owner and mode of the folder and of every file are checked (distrust):
//                                                 ours or root's, writable by nobody else; CacheTrust::group admits a group
//   a reader sees half a file                     a file is written under a name of its own in a staging folder, flushed, and
//                                                 linked into place, so that the first publisher wins and an open file is
//                                                 never replaced; renamed where the file system has no links
//   NFS: a full disk shows at close               fsync before the link, and no file without it
//   NFS: ESTALE while a file is replaced          the lookup is repeated a few times after a random pause of milliseconds
//   a pipe or a device in the place of a file     O_NONBLOCK at open, then fstat; only regular files are read
//   a write to a closed pipe or past a limit      NoWriteSignals: an error text, no SIGPIPE or SIGXFSZ
//   the process dies while it writes              the staged file stays; names carry host, process and 128 random bits, and
//                                                 those of an hour ago are swept
//   an odd umask                                  modes are set behind the creation: readable by the owner, by the group where
//                                                 it is trusted

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

#include "runtime/no_write_signals.h"

namespace tessera::runtime {
namespace {

constexpr int kStaleRetries =
    3;  // ESTALE: the file was replaced on a network mount while we looked
constexpr int kMaxSweptFiles = 64;
constexpr time_t kStaleSeconds = 3600;
constexpr std::string_view kStagedPrefix = "tessera-";
constexpr size_t kStagedDigits = 32;

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

Folder folder_of(int fd, int error) {
  Folder folder;
  folder.fd = Descriptor(fd);
  if (fd >= 0) return folder;
  folder.missing = error == ENOENT || error == ESTALE;
  folder.problem = error == ELOOP || error == ENOTDIR
                       ? "is not a directory (links are not followed)"
                       : "cannot be opened: " + error_text(error);
  return folder;
}

Folder judge(int fd, int error, CacheTrust trust) {
  Folder folder = folder_of(fd, error);
  folder.trust = trust;
  if (!folder.fd) return folder;
  struct stat info = {};
  folder.problem = fstat(fd, &info) == 0 ? distrust(info, trust) : error_text(errno);
  if (!folder.problem.empty()) folder.fd = Descriptor();
  return folder;
}

// mkdir applies the umask to its mode, so the mode is set here.
void share_with_group(int fd, CacheTrust trust, mode_t mode) {
  if (trust == CacheTrust::group && fd >= 0) static_cast<void>(fchmod(fd, mode));
}

// A umask such as 0777 takes the file from its owner, too.
void keep_readable(int fd) {
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR;
  struct stat info = {};
  if (fstat(fd, &info) != 0 || (info.st_mode & kOwner) == kOwner) return;
  static_cast<void>(fchmod(fd, (info.st_mode & 0777) | kOwner));
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

// mkdir -p. A folder that exists is success, also when another process made it first.
int make_folders(const std::string& path, mode_t mode) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    if (mkdir(path.substr(0, end).c_str(), mode) != 0 && errno != EEXIST && errno != EROFS &&
        errno != EACCES) {
      return errno;
    }
  }
  return mkdir(path.c_str(), mode) == 0 || errno == EEXIST ? 0 : errno;
}

// "link/" would follow the link.
std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string read_all(int fd, size_t size, std::string& bytes) {
  bytes.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(fd, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return "cannot be read: " + error_text(errno);
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
  return "";
}

// Reads the bytes of an opened file; `problem` says why not.
FileBytes bytes_of(int fd, const struct stat& info, int64_t max_bytes) {
  FileBytes file;
  file.seen = info;
  if (!S_ISREG(info.st_mode)) {
    file.problem = "is not a regular file";
  } else if (info.st_size > max_bytes) {
    file.problem = fmt::format("is too large ({} bytes, at most {})", info.st_size, max_bytes);
  } else {
    std::string bytes;
    file.problem = read_all(fd, static_cast<size_t>(info.st_size), bytes);
    if (file.problem.empty()) file.bytes = std::move(bytes);
  }
  return file;
}

// Process ids repeat across hosts and containers, so the name adds the host and 128 random bits.
std::string staging_name() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::random_device random;
  return fmt::format("{}{}-{}-{:08x}{:08x}{:08x}{:08x}", kStagedPrefix, host.data(), getpid(),
                     random(), random(), random(), random());
}

// Writes a new file `staged` with these bytes. Removes it again on failure. NFS reports a full disk
// when the file is flushed, so no unflushed file may replace another.
std::string write_staged(const Folder& staging, const std::string& staged, std::string_view bytes,
                         mode_t mode) {
  const NoWriteSignals guard;
  const Descriptor fd(openat(staging.fd.get(), staged.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return error_text(errno);
  keep_readable(fd.get());
  share_with_group(fd.get(), staging.trust, 0640);
  std::string problem = write_all(fd.get(), bytes);
  if (problem.empty() && fsync(fd.get()) != 0) problem = error_text(errno);
  if (!problem.empty()) unlinkat(staging.fd.get(), staged.c_str(), 0);
  return problem;
}

bool is_same(const struct stat& now, const struct stat& seen) {
  return now.st_ino == seen.st_ino && now.st_dev == seen.st_dev && now.st_size == seen.st_size &&
         now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
}

bool has_no_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
}

// Links the file into place: the first publisher wins and an open file is never replaced. Renames
// where the file system has no links.
std::string move_into_place(int from, const std::string& staged, int to, const std::string& name) {
  std::string problem;
  if (linkat(from, staged.c_str(), to, name.c_str(), 0) != 0) {
    if (has_no_links(errno) && renameat(from, staged.c_str(), to, name.c_str()) == 0) return "";
    struct stat info = {};
    if (errno != EEXIST) {
      problem = error_text(errno);
    } else if (fstatat(to, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
               !S_ISREG(info.st_mode)) {
      problem = name + " is there and is not a regular file";
    }
  }
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
  const std::string path = without_last_slash(given);
  if (path.empty() || path.front() != '/') {
    Folder folder;
    folder.problem = "is not an absolute path";
    return folder;
  }
  int fd = open_folder(AT_FDCWD, path);
  if (fd < 0 && errno == ENOENT && missing == Missing::create) {
    if (const int error = make_folders(path, 0700)) return judge(-1, error, trust);
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

Folder open_output_folder(const std::string& given) {
  const std::string path = without_last_slash(given);
  int fd = open_folder(AT_FDCWD, path);
  if (fd < 0 && errno == ENOENT) {
    if (const int error = make_folders(path, 0777)) return folder_of(-1, error);
    fd = open_folder(AT_FDCWD, path);
  }
  return folder_of(fd, errno);
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

std::string why_not_writable(const std::string& path) {
  std::string existing = without_last_slash(path);
  struct stat info = {};
  while (lstat(existing.c_str(), &info) != 0 && errno == ENOENT) {
    const size_t slash = existing.rfind('/');
    if (slash == std::string::npos) break;
    existing.resize(std::max<size_t>(slash, 1));
  }
  const std::string file = existing + "/" + staging_name();
  const Descriptor fd(
      open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return error_text(errno);
  unlink(file.c_str());
  return "";
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

std::optional<std::vector<std::string>> names_in(const Folder& folder) {
  const int fd = openat(folder.fd.get(), ".", kFolderFlags);
  if (fd < 0) return std::nullopt;
  const auto close_stream = [](DIR* stream) { closedir(stream); };
  const std::unique_ptr<DIR, decltype(close_stream)> stream(fdopendir(fd), close_stream);
  if (!stream) {
    close(fd);
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* item = readdir(stream.get());
    if (!item) break;
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return std::nullopt;
  return names;
}

FileBytes read_file(const Folder& folder, const std::string& name, int64_t max_bytes) {
  FileBytes file;
  for (int attempt = 0;; ++attempt) {
    const auto give_up = [&](int error) {
      file.missing = error == ENOENT || error == ESTALE;
      file.is_stale = error == ESTALE;
      file.problem =
          error == ELOOP ? "is a symbolic link" : "cannot be opened: " + error_text(error);
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
    const std::string problem = S_ISREG(info.st_mode) ? distrust(info, folder.trust) : "";
    if (!problem.empty()) return file.problem = problem, std::move(file);
    const struct stat seen = file.seen;
    file = bytes_of(fd.get(), info, max_bytes);
    file.seen = seen;
    return file;
  }
}

FileBytes read_named_file(const std::string& path, int64_t max_bytes) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info = {};
  if (fd && fstat(fd.get(), &info) == 0) return bytes_of(fd.get(), info, max_bytes);
  FileBytes file;
  file.missing = errno == ENOENT;
  file.problem = "cannot be opened: " + error_text(errno);
  return file;
}

std::string publish_file(const Folder& staging, const Folder& folder, const std::string& name,
                         std::string_view bytes) {
  const std::string staged = staging_name();
  std::string problem = write_staged(staging, staged, bytes, 0600);
  if (!problem.empty()) return problem;
  problem = move_into_place(staging.fd.get(), staged, folder.fd.get(), name);
  // Some file systems cannot sync a folder; the entry is verified when read, so this may fail.
  if (problem.empty()) static_cast<void>(fsync(folder.fd.get()));
  return problem;
}

std::string replace_file(const Folder& folder, const std::string& name, std::string_view bytes) {
  const std::string staged = staging_name();
  std::string problem = write_staged(folder, staged, bytes, 0644);
  if (!problem.empty()) return problem;
  if (renameat(folder.fd.get(), staged.c_str(), folder.fd.get(), name.c_str()) == 0) return "";
  problem = error_text(errno);
  unlinkat(folder.fd.get(), staged.c_str(), 0);
  return problem;
}

bool remove_if_unchanged(const Folder& folder, const std::string& name, const struct stat& seen) {
  struct stat now = {};
  if (fstatat(folder.fd.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const int flags = S_ISDIR(now.st_mode) ? AT_REMOVEDIR : 0;
  return is_same(now, seen) && unlinkat(folder.fd.get(), name.c_str(), flags) == 0;
}

std::string clear_place(const Folder& folder, const std::string& name, const struct stat& seen) {
  if (remove_if_unchanged(folder, name, seen)) return "";
  const int error = errno;
  struct stat now = {};
  const bool is_there = fstatat(folder.fd.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
  if (!is_there || !is_same(now, seen)) return "";  // another process was faster
  if (!S_ISDIR(now.st_mode)) return "it cannot be removed: " + error_text(error);
  const std::string aside = staging_name();
  if (renameat(folder.fd.get(), name.c_str(), folder.fd.get(), aside.c_str()) == 0) {
    return "it is not empty and was renamed to " + aside;
  }
  return "it cannot be renamed: " + error_text(errno);
}

// An OFD lock belongs to the open file, not to the process: it also excludes other threads.
FileLock lock_file(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return FileLock::taken;
  return errno == EAGAIN || errno == EACCES ? FileLock::held_by_another : FileLock::unsupported;
}

bool is_staged_name(std::string_view name) {
  if (name.size() <= kStagedPrefix.size() + kStagedDigits ||
      name.substr(0, kStagedPrefix.size()) != kStagedPrefix) {
    return false;
  }
  const std::string_view digits = name.substr(name.size() - kStagedDigits);
  return name[name.size() - kStagedDigits - 1] == '-' &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void sweep_stale_files(const Folder& staging) {
  int swept = 0;
  for (const std::string& name : names_in(staging).value_or(std::vector<std::string>())) {
    if (!is_staged_name(name)) continue;
    struct stat info = {};
    if (fstatat(staging.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const time_t age = time(nullptr) - info.st_mtim.tv_sec;  // a wrong clock makes it negative
    if (!S_ISREG(info.st_mode) || std::abs(age) < kStaleSeconds) continue;
    unlinkat(staging.fd.get(), name.c_str(), 0);
    if (++swept == kMaxSweptFiles) break;
  }
}

}  // namespace tessera::runtime
