#pragma once
// Keeps processes of one host from compiling the same kernel at the same time. Advisory: results
// are right without it, and it gives up when the other process takes too long.

#include <chrono>
#include <string>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

class PeerLock {
 public:
  /// Waits up to `patience` for the holder of `key`. Does nothing without a private folder of this
  /// host ($XDG_RUNTIME_DIR, else /dev/shm).
  PeerLock(const std::string& key, std::chrono::milliseconds patience);
  ~PeerLock();
  PeerLock(const PeerLock&) = delete;
  PeerLock& operator=(const PeerLock&) = delete;

  /// True if another process held the lock meanwhile, and so may have stored the kernel.
  bool waited() const { return waited_; }

 private:
  bool try_lock();

  Folder folder_;
  std::string name_;
  Descriptor fd_;
  bool waited_ = false;
};

}  // namespace tessera::runtime
