#pragma once
// The compiler of a process: known by name from its files, opened only when something has to be
// compiled. Opening maps 100 MB and takes 6 to 50 ms, which a start from a warm cache need not pay.

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

  /// Opens libnvrtc on first use; throws open_nvrtc's error, each time the same.
  const Nvrtc& open();

  /// What names it in keys, without opening it where its files tell; nothing where there is none.
  /// Opening may correct it: the file that seemed to be it could not be opened.
  std::optional<NvrtcId> id();

  // Around fork: no child begins with the lock taken.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  void try_to_open();

  const LibraryLoader loader_;
  const NvrtcSearch search_;
  std::mutex mutex_;  // held while opening: all wait for one
  std::unique_ptr<const Nvrtc> nvrtc_;
  std::optional<Error> error_;
  std::optional<NvrtcId> id_;
};

}  // namespace tessera::runtime
