#pragma once
// All entries of a cache folder, whatever their schema, and the texts for profilers beside them: for
// keeping it within bounds and for `tessera cache`. A file counts only if it has the whole name that
// the cache gives: what else a user keeps in these folders is neither listed nor removed.
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
  // Its folders: "v2", "sm_90a", "3f". Of a text: "source" and none.
  std::string schema, target, shard;
  std::string name;  // "per_token_cast-<64 digits>.tsk"
  int64_t bytes = 0;
  time_t used = 0;  // when it was stored or last read, to the hour
  struct stat seen = {};

  std::string path() const;
  std::string op() const;
  std::string key() const;  // 64 digits, or "" of a text
};

/// Every entry and text below `root`. Folders that are not trusted are left out.
std::vector<StoredEntry> list_entries(const Folder& root);

/// The folder that holds an entry.
Folder open_folder_of(const Folder& root, const StoredEntry& entry);

/// Removes the file unless it has been replaced since it was listed. Harmless to its readers: they
/// have a copy. False if it stays.
bool remove_entry(const Folder& root, const StoredEntry& entry);

/// Bytes and entries that a folder may hold; 0 = any number.
struct CacheLimits {
  int64_t bytes = 0;
  int64_t entries = 0;
};

/// Removes entries until the limits hold: first texts and entries of other schemas, then the least
/// recently used; none that was stored or used within the last hour. A time to come by more than that
/// counts as long ago. Returns how many; -1 if another process is at it. `now` is for tests.
int64_t prune(const Folder& root, CacheLimits limits, time_t now);

/// Notes that an entry was read, at most once an hour.
void mark_used(const Folder& folder, const std::string& name, const struct stat& seen, time_t now);

}  // namespace tessera::runtime
