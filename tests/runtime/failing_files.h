#pragma once
// A file system that fails on demand: the C library's calls, with some of them answered otherwise.
// The test program defines them itself, so that the runtime needs no layer of its own for tests.

#include <atomic>
#include <functional>
#include <string>

namespace tessera::test {

/// A call that the cache makes.
enum class FileCall { open, open_for_writing, write, sync, link, rename, make_folder, lock };

/// While it lives, calls of one kind on paths that end with or contain `part` fail with `error`
/// (all of them if it is empty). One at a time.
class FailingFiles {
 public:
  FailingFiles(FileCall call, int error, std::string part = "");
  /// The same without failing: `watch` is called before each call.
  FailingFiles(FileCall call, std::function<void()> watch);
  ~FailingFiles();
  FailingFiles(const FailingFiles&) = delete;
  FailingFiles& operator=(const FailingFiles&) = delete;

  /// Calls that were made to fail or watched.
  int count() const;
};

}  // namespace tessera::test
