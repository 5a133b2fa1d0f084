#pragma once
// Keeps processes from doing one thing at the same time: compiling the same kernel, or changing the
// same file of tile sizes. Waits for a bounded time, and does without where there are no locks.

#include <chrono>
#include <string>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

class PeerLock {
 public:
  /// Waits up to `patience` for the holder of `key`. Does nothing without a private folder of this
  /// host ($XDG_RUNTIME_DIR, else /dev/shm).
  PeerLock(const std::string& key, std::chrono::milliseconds patience);
  /// The same for the file `name` of an opened folder. The file has mode 0600 (0660 where a group is
  /// trusted): a user who may not write it cannot hold the lock.
  PeerLock(Folder folder, std::string name, std::chrono::milliseconds patience);
  ~PeerLock();
  PeerLock(const PeerLock&) = delete;
  PeerLock& operator=(const PeerLock&) = delete;

  /// True if another process held the lock meanwhile, and so may have stored the kernel.
  bool waited() const { return waited_; }
  /// True if the other process held it for longer than `patience`.
  bool gave_up() const { return gave_up_; }
  const Folder& folder() const { return folder_; }

 private:
  bool try_lock();

  Folder folder_;
  std::string name_;
  Descriptor fd_;
  bool waited_ = false;
  bool gave_up_ = false;
};

}  // namespace tessera::runtime
