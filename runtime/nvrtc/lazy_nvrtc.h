#pragma once
// The compiler of a process. Its identity is read from its files; it is opened only for a compile.
// Opening maps 100 MB and takes 6 to 50 ms, which a start from a warm cache need not pay.

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "dsl/base/error.h"
#include "runtime/nvrtc/nvrtc.h"

namespace tessera::runtime {

class LazyNvrtc {
 public:
  LazyNvrtc(LibraryLoader loader, NvrtcSearch search)
      : loader_(std::move(loader)), search_(std::move(search)) {}

  /// Opens libnvrtc on first use. Throws the same open_nvrtc error on every call.
  const Nvrtc& open();

  /// Its identity in keys, without opening it if its files tell it; nothing if there is no
  /// compiler. Opening may correct the identity, if the file that was identified cannot be opened.
  std::optional<NvrtcId> id();

  // Around fork: no child starts with the lock held.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  void try_to_open();

  const LibraryLoader loader_;
  const NvrtcSearch search_;
  std::mutex mutex_;  // held while opening: all callers wait for one
  std::unique_ptr<const Nvrtc> nvrtc_;
  std::optional<Error> error_;
  std::optional<NvrtcId> id_;
};

}  // namespace tessera::runtime
