#pragma once
// Compiled kernels on disk, in a list of folders: the first is written, all are searched. Trouble
// with a folder or a file is a miss and one warning, never an error.
//
//   <root>/v<schema>/<target>/<first two digits of key>/<op>-<key>.tsk
//   <root>/tmp/                                          entries being written

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/key.h"
#include "runtime/counters.h"
#include "runtime/image.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace tessera::runtime {

/// What `tessera doctor` says about a cache folder.
struct RootStatus {
  std::string path;
  bool exists = false;
  bool trusted = false;
  bool written = false;  // new entries go here
  std::string problem;   // why it is not used
};

class DiskCache {
 public:
  DiskCache(const Options& options, Log& log, Counters& counters);

  /// The verified entry of this key, read into memory. A file that is not what it should be is
  /// removed and warned about.
  std::optional<Image> find(const std::string& op, Target target, const CacheKey& key);

  /// Stores an image in the first folder. Best effort.
  void publish(const CacheKey& key, const Image& image);

  /// Removes an entry that the driver refused.
  void discard(const std::string& op, Target target, const CacheKey& key,
               const std::string& reason);

  std::vector<RootStatus> status() const;

 private:
  std::optional<Image> find_in(size_t root_idx, const std::string& op, Target target,
                               const CacheKey& key);
  bool is_written(size_t root_idx) const;

  const std::vector<std::string> roots_;
  const CacheMode mode_;
  Log& log_;
  Counters& counters_;
  std::atomic<bool> swept_ = false;
};

/// Path of an entry below its root.
std::string entry_path(const std::string& op, Target target, const CacheKey& key);

}  // namespace tessera::runtime
