#pragma once
// Opens a cache folder and decides whether it is ours. A user may name any folder, even the home
// folder, so the cache writes and removes files only below a folder that carries its marker, a
// CACHEDIR.TAG (backup programs know it too). The cache marks a folder that is new or empty, or that
// holds only files of a version without markers (prune.lock and other names of the cache). In any
// other folder it uses a folder of its own, "tessera-cache". Folders that are only read need no
// marker.

#include <string>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

struct CacheRoot {
  Folder folder;
  std::string path;        // as the user named it, or "tessera-cache" below that
  bool is_marked = false;  // files below may be removed only if true
  bool is_new = false;     // "tessera-cache" was made just now
};

/// Opens the folder that kernels are searched in.
CacheRoot open_cache_root(const std::string& path, CacheTrust trust);

/// Opens the folder that new kernels are written to. Missing::create makes and marks it; is_marked
/// is then true unless there is a problem. Missing::leave writes nothing.
CacheRoot open_written_root(const std::string& path, CacheTrust trust, Missing missing);

/// Names of the cache's files and folders in its root.
inline constexpr const char* kStagingFolder = "tmp";
inline constexpr const char* kTextFolder = "source";
inline constexpr const char* kPruneLock = "prune.lock";
/// True for "v" and a number: the folder of a schema.
bool is_schema_name(std::string_view name);

}  // namespace tessera::runtime
