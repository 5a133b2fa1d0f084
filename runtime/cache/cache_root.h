#pragma once
// Where the kernels of a cache folder are, and whether the folder is ours. A user may name any folder,
// his home too, so the cache writes and removes only below a folder that carries its marker: a file
// CACHEDIR.TAG, which backup programs know as well. The marker is written only into a folder that is
// new or empty, or that holds nothing but what a version without markers left: its prune.lock and
// other names of the cache. In a folder with anything else the cache has a folder of its own,
// "tessera-cache". Read folders need no marker: nothing below them is changed.

#include <string>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

struct CacheRoot {
  Folder folder;
  std::string path;        // as the user named it, or "tessera-cache" below that
  bool is_marked = false;  // only then may anything below be removed
  bool is_new = false;     // "tessera-cache" was made just now
};

/// The folder that kernels are searched in.
CacheRoot open_cache_root(const std::string& path, CacheTrust trust);

/// The folder that new kernels go to. With Missing::create it is made and marked, and is_marked is
/// true unless there is a problem; with Missing::leave nothing is written.
CacheRoot open_written_root(const std::string& path, CacheTrust trust, Missing missing);

/// Names that the cache gives to what is in its root.
inline constexpr const char* kStagingFolder = "tmp";
inline constexpr const char* kTextFolder = "source";
inline constexpr const char* kPruneLock = "prune.lock";
/// "v" and a number: the folder of a schema.
bool is_schema_name(std::string_view name);

}  // namespace tessera::runtime
