#pragma once
// Keeps the processes of one host from compiling the same kernel at the same time. Advisory:
// nothing is wrong without it, and it gives up when the other one takes too long.

#include <chrono>
#include <string>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

class PeerLock {
 public:
  /// Waits up to `patience` for the holder of `key`. Without a private folder of this host
  /// ($XDG_RUNTIME_DIR, else /dev/shm) does nothing.
  PeerLock(const std::string& key, std::chrono::milliseconds patience);
  ~PeerLock();
  PeerLock(const PeerLock&) = delete;
  PeerLock& operator=(const PeerLock&) = delete;

  /// Whether somebody else held it meanwhile, and so may have stored the kernel.
  bool waited() const { return waited_; }

 private:
  bool try_lock();

  Folder folder_;
  std::string name_;
  Descriptor fd_;
  bool waited_ = false;
};

}  // namespace tessera::runtime
