#pragma once
// Compiled kernels on disk, in a list of folders and bundles. The cache writes to the first and
// searches all. A problem with a folder or file is a miss and one warning, never an error.
//
//   <root>/CACHEDIR.TAG                                  the marker (cache_root.h)
//   <root>/v<schema>/<target>/<first two digits of key>/<op>-<key>.tsk
//   <root>/tmp/                                          entries being written
//   <root>/source/                                       texts for profilers, where asked for
//   <root>/prune.lock                                    held while entries are evicted
//
// Where a written root holds other files, the cache uses its subfolder "tessera-cache".

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/bundle.h"
#include "runtime/cache/cache_root.h"
#include "runtime/cache/inventory.h"
#include "runtime/cache/key.h"
#include "runtime/image.h"
#include "runtime/live_counters.h"
#include "runtime/log_writer.h"
#include "runtime/options.h"

namespace tessera::runtime {

/// The state of a cache folder, as `tessera doctor` reports it.
struct RootStatus {
  std::string path;
  bool exists = false;
  bool trusted = false;
  bool written = false;  // new entries go here
  bool bundle = false;   // a file of ahead-of-time kernels
  bool network = false;  // on a network file system
  std::string problem;   // why it is not used
};

class DiskCache {
 public:
  DiskCache(const Options& options, Log& log, Counters& counters);

  /// Reads the entry of this key into memory and verifies it. A damaged file is removed, with a
  /// warning.
  std::optional<Image> find(const std::string& op, Target target, const KernelKey& key);

  /// True if a bundle has the kernel.
  bool in_bundle(const CacheKey& kernel) const;

  /// Stores an image in the first folder if that one is written, and evicts entries beyond the
  /// bounds, at most once a minute. Best effort.
  void publish(const CacheKey& key, const Image& image);

  /// The folder of keep_text(): "source" below the written folder, "" if none is written.
  std::string text_folder();
  /// Writes a kernel's text under that name, for profilers. Best effort, as publish().
  void keep_text(const std::string& name, const std::string& text);

  /// True if publish() would try.
  bool is_writable() const { return is_written(0); }

  /// Identifies the site's secret in keys: sites may share a folder and never read each other's
  /// entries. Empty without a secret.
  const std::string& site() const { return site_; }

  /// The bytes of an entry, signed where the site has a secret.
  std::string encode(const CacheKey& key, const Image& image) const;
  /// Says why these bytes would not be read back; "" if they would.
  std::string problem_of(const std::string& bytes) const;

  /// Removes an entry that the driver refused.
  void discard(const std::string& op, Target target, const CacheKey& key,
               const std::string& reason);

  std::vector<RootStatus> status() const;

 private:
  struct Root {
    std::string path;
    bool is_bundle = false;
    std::optional<Bundle> bundle;
    std::string problem;  // of the bundle
  };
  static std::vector<Root> open_roots(const Options& options, const std::string& secret);
  std::optional<Image> find_in_folder(size_t root_idx, const std::string& op, Target target,
                                      const CacheKey& key);
  std::optional<Image> find_in_bundle(const Root& root, const std::string& op,
                                      const CacheKey& kernel);
  void report_unused(const std::string& path, const std::string& problem);
  void report_corrupt(const std::string& op, const std::string& path, const std::string& reason,
                      const std::string& leftover);
  void report_unwritten(const std::string& subject, const std::string& problem);
  void keep_within_bounds(const Folder& root);
  CacheRoot open_root_to_write();
  bool is_written(size_t root_idx) const;

  const std::string secret_;
  const std::string site_;
  const std::vector<Root> roots_;
  const CacheMode mode_;
  const CacheTrust trust_;
  const CacheLimits limits_;
  Log& log_;
  Counters& counters_;
  std::atomic<bool> swept_ = false;
  std::atomic<int64_t> next_prune_ = 0;  // steady clock, seconds
};

/// Path of an entry below its root.
std::string entry_path(const std::string& op, Target target, const CacheKey& key);

}  // namespace tessera::runtime
