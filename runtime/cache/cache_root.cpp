#include "runtime/cache/cache_root.h"

#include <utility>
#include <vector>

namespace tessera::runtime {
namespace {

constexpr const char* kOwnFolder = "tessera-cache";
constexpr const char* kMarker = "CACHEDIR.TAG";
// The standard (https://bford.info/cachedir/) asks for the first line. The second line marks
// Tessera's caches.
constexpr std::string_view kMarkerStart =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled kernels of Tessera.";
constexpr std::string_view kMarkerRest =
    " Files here with the names of its cache may be removed at any time.\n"
    "# About this file: https://bford.info/cachedir/\n";

bool is_marked(const Folder& folder) {
  const FileBytes file = read_file(folder, kMarker, 4096);
  return file.bytes && file.bytes->substr(0, kMarkerStart.size()) == kMarkerStart;
}

// True if the folder is new, empty, or written by a version without markers. prune.lock identifies
// the last: users have folders "tmp" and "source" as well.
bool holds_nothing_of_others(const Folder& folder) {
  const auto names = names_in(folder);
  if (!names) return false;
  bool is_empty = true;
  bool has_lock = false;
  for (const std::string& name : *names) {
    if (is_staged_name(name)) continue;  // a marker that is being written
    is_empty = false;
    has_lock = has_lock || name == kPruneLock;
    if (name != kPruneLock && name != kStagingFolder && name != kTextFolder &&
        !is_schema_name(name)) {
      return false;
    }
  }
  return is_empty || has_lock;
}

void refuse(CacheRoot& root, std::string problem) {
  root.folder.fd = Descriptor();
  root.folder.problem = std::move(problem);
}

// Writes the marker. Returns false if the folder holds files of others.
bool mark(CacheRoot& root, Missing missing) {
  root.is_marked = is_marked(root.folder);
  if (root.is_marked) return true;
  const bool is_ours = holds_nothing_of_others(root.folder);
  if (is_ours && missing == Missing::leave) return true;
  if (is_ours) {
    std::string problem = publish_file(root.folder, root.folder, kMarker,
                                       std::string(kMarkerStart) + std::string(kMarkerRest));
    if (!problem.empty()) return refuse(root, kMarker + (": " + problem)), true;
  }
  // Another process may have marked and filled the folder meanwhile.
  root.is_marked = is_marked(root.folder);
  return root.is_marked;
}

CacheRoot own_folder_in(const CacheRoot& parent, Missing missing) {
  CacheRoot root;
  root.path = parent.path + "/" + kOwnFolder;
  root.folder = open_inside(parent.folder, kOwnFolder, Missing::leave);
  root.is_new = root.folder.missing && missing == Missing::create;
  if (root.is_new) root.folder = open_inside(parent.folder, kOwnFolder, Missing::create);
  return root;
}

}  // namespace

CacheRoot open_cache_root(const std::string& path, CacheTrust trust) {
  CacheRoot root{open_root(path, Missing::leave, trust), path};
  if (!root.folder.fd) return root;
  root.is_marked = is_marked(root.folder);
  if (root.is_marked) return root;
  CacheRoot own = own_folder_in(root, Missing::leave);
  own.is_marked = own.folder.fd && is_marked(own.folder);
  return own.is_marked ? std::move(own) : std::move(root);
}

CacheRoot open_written_root(const std::string& path, CacheTrust trust, Missing missing) {
  CacheRoot root{open_root(path, missing, trust), path};
  if (!root.folder.fd || mark(root, missing)) return root;
  CacheRoot own = own_folder_in(root, missing);
  if (!own.folder.fd || mark(own, missing)) return own;
  refuse(own, "is not empty and has no " + std::string(kMarker) + " of Tessera");
  return own;
}

bool is_schema_name(std::string_view name) {
  return name.size() >= 2 && name.size() <= 10 && name.front() == 'v' &&
         name.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

}  // namespace tessera::runtime
