#include "runtime/cache/peer_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <utility>

namespace tessera::runtime {
namespace {

std::string folder_path() {
  static const std::string* path = [] {
    const char* runtime_dir = secure_getenv("XDG_RUNTIME_DIR");
    return new std::string(runtime_dir && *runtime_dir == '/'
                               ? fmt::format("{}/tessera", runtime_dir)
                               : fmt::format("/dev/shm/tessera-{}", geteuid()));
  }();
  return *path;
}

}  // namespace

PeerLock::PeerLock(const std::string& key, std::chrono::milliseconds patience)
    : PeerLock(open_root(folder_path(), Missing::create), key.substr(0, 32) + ".lock", patience) {}

PeerLock::PeerLock(Folder folder, std::string name, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), name_(std::move(name)) {
  if (!folder_.fd) return;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::milliseconds(1);
  while (!try_lock()) {
    waited_ = true;
    if (std::chrono::steady_clock::now() >= deadline) {
      gave_up_ = true;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(20));
  }
}

// True if the lock is held or cannot be had at all.
bool PeerLock::try_lock() {
  const int folder = folder_.fd.get();
  Descriptor fd(openat(folder, name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return true;
  if (folder_.trust == CacheTrust::group) static_cast<void>(fchmod(fd.get(), 0660));
  const FileLock lock = lock_file(fd.get());
  if (lock != FileLock::taken) return lock == FileLock::unsupported;
  // The last holder may have removed the file after we opened it. Our lock then excludes nobody.
  struct stat ours = {};
  struct stat named = {};
  if (fstat(fd.get(), &ours) != 0 ||
      fstatat(folder, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      ours.st_ino != named.st_ino) {
    return false;
  }
  fd_ = std::move(fd);
  return true;
}

PeerLock::~PeerLock() {
  if (fd_) unlinkat(folder_.fd.get(), name_.c_str(), 0);
}

}  // namespace tessera::runtime
