#pragma once
// `tessera cache`: what the folders and bundles of compiled kernels hold. Safe while programs use them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/bundle.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/inventory.h"
#include "runtime/options.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {

/// A cache folder or a bundle, opened if it can be trusted.
struct CacheFolder {
  std::string path;
  runtime::Folder folder;
  std::vector<runtime::StoredEntry> entries;
  std::string secret;                          // of the site; empty = none
  std::optional<runtime::Bundle> bundle = {};  // then there are no folder and no entries
  std::vector<std::string> problems = {};      // folders below it whose entries are left out
};

/// The folders and bundles of these options, missing ones left out. Throws an argument error for one
/// that cannot be used.
std::vector<CacheFolder> open_cache(const runtime::Options& options);

/// The folder that these options write to, to remove from it; nothing if it is not there yet. Throws
/// an unsupported error if a folder with other files is in its place, and what open_cache() throws.
std::optional<CacheFolder> open_written_cache(const runtime::Options& options);

/// A row per entry: op, target, bytes, hours since its last use, grid and threads, key.
TextTable cache_list(const std::vector<CacheFolder>& cache);
/// Entries and bytes per folder or bundle, schema and target.
TextTable cache_usage(const std::vector<CacheFolder>& cache);

/// Reads every entry; a line per damaged one.
struct Verification {
  int64_t good = 0;
  std::vector<std::string> damaged;  // "path: reason"
};
/// `progress` is told how many of the entries have been read.
Verification verify_cache(const std::vector<CacheFolder>& cache,
                          const std::function<void(size_t, size_t)>& progress);

/// The entry whose key begins with `key`. Throws an argument error if there is none or more than
/// one.
runtime::Entry find_entry(const std::vector<CacheFolder>& cache, const std::string& key);

/// The inputs in which two keys differ: a row per input with both values; values that are alike are not
/// shown.
TextTable explain(const runtime::Entry& a, const runtime::Entry& b);
/// All inputs of one key.
TextTable explain(const runtime::Entry& entry);

}  // namespace tessera::tools
