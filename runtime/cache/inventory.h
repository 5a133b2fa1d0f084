#pragma once
// Lists all entries of a cache folder, of any schema, and the texts for profilers, for eviction and
// for `tessera cache`. A file counts only if its whole name is one that the cache gives, so other
// files in these folders are neither listed nor removed.
//
//   v<number>/<target>/<first two digits of key>/<op>-<64 digits of key>.tsk
//   source/<op>-<target>-<8 digits of key>.cu

#include <sys/stat.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

struct StoredEntry {
  // The folders of an entry: "v2", "sm_90a", "3f". Of a text: "source" and none.
  std::string schema, target, shard;
  std::string name;  // "per_token_cast-<64 digits>.tsk"
  int64_t bytes = 0;
  time_t used = 0;  // time of the store or of the last read, to the hour
  struct stat seen = {};

  std::string path() const;
  std::string op() const;
  std::string key() const;  // 64 digits, or "" of a text
};

/// Lists every entry and text below `root`. Skips folders that cannot be opened or are not trusted, with a line
/// in `problems` for each.
std::vector<StoredEntry> list_entries(const Folder& root,
                                      std::vector<std::string>* problems = nullptr);

/// Opens the folder that holds an entry.
Folder open_folder_of(const Folder& root, const StoredEntry& entry);

/// Removes the file unless it was replaced since it was listed. Readers are safe: they hold a copy.
/// False if it stays.
bool remove_entry(const Folder& root, const StoredEntry& entry);

/// Bounds of a folder in bytes and entries; 0 = none.
struct CacheLimits {
  int64_t bytes = 0;
  int64_t entries = 0;
};

/// Evicts entries until the limits hold: first texts and entries of other schemas, then the least
/// recently used. Keeps all that were stored or used within the last hour. A time more than an hour
/// in the future counts as old. Returns the number of evicted entries; -1 if another process holds
/// the lock. `now` is for tests.
int64_t prune(const Folder& root, CacheLimits limits, time_t now);

/// Records that an entry was read, at most once an hour.
void mark_used(const Folder& folder, const std::string& name, const struct stat& seen, time_t now);

}  // namespace tessera::runtime
