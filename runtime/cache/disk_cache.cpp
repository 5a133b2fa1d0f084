#include "runtime/cache/disk_cache.h"

#include <fmt/format.h>

#include <array>

#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"

namespace tessera::runtime {
namespace {

std::array<std::string, 3> entry_folders(Target target, const CacheKey& key) {
  return {fmt::format("v{}", kCacheSchema), to_string(target), key.hex.substr(0, 2)};
}

std::string entry_name(const std::string& op, const CacheKey& key) {
  return fmt::format("{}-{}.tsk", op, key.hex);
}

// Walks from an opened root to the folder of an entry; stops at the first that is missing or not
// trusted.
Folder open_entry_folder(Folder root, Target target, const CacheKey& key, Missing missing) {
  Folder folder = std::move(root);
  for (const std::string& name : entry_folders(target, key)) {
    if (!folder.fd) break;
    folder = open_inside(folder, name, missing);
  }
  return folder;
}

}  // namespace

std::string entry_path(const std::string& op, Target target, const CacheKey& key) {
  std::string path;
  for (const std::string& folder : entry_folders(target, key)) path += folder + "/";
  return path + entry_name(op, key);
}

DiskCache::DiskCache(const Options& options, Log& log, Counters& counters)
    : roots_(options.cache == CacheMode::off ? std::vector<std::string>() : options.cache_roots),
      mode_(options.cache),
      log_(log),
      counters_(counters) {}

bool DiskCache::is_written(size_t root_idx) const {
  return root_idx == 0 && mode_ == CacheMode::read_write;
}

std::optional<Image> DiskCache::find(const std::string& op, Target target, const CacheKey& key) {
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (auto image = find_in(i, op, target, key)) return image;
  }
  return std::nullopt;
}

std::optional<Image> DiskCache::find_in(size_t root_idx, const std::string& op, Target target,
                                        const CacheKey& key) {
  const std::string& root = roots_.at(root_idx);
  const Folder folder =
      open_entry_folder(open_root(root, Missing::leave), target, key, Missing::leave);
  if (!folder.fd) {
    if (!folder.missing) {
      log_.write_once(LogLevel::warn, "root " + root,
                      fmt::format("cache folder {} is not used: it {}", root, folder.problem));
    }
    return std::nullopt;
  }
  FileBytes file = read_file(folder, entry_name(op, key));
  if (file.missing) return std::nullopt;
  if (file.bytes) {
    std::string reason;
    auto image = decode_entry(*file.bytes, key, reason);
    if (image) return image;
    file.problem = reason;
  }
  ++counters_.corrupt_entries;
  const std::string path = root + "/" + entry_path(op, target, key);
  log_.write_once(LogLevel::warn, "entry " + path,
                  fmt::format("{}: cache entry {} cannot be used ({}); compiling again", op, path,
                              file.problem));
  if (is_written(root_idx)) remove_if_unchanged(folder, entry_name(op, key), file.seen);
  return std::nullopt;
}

void DiskCache::publish(const CacheKey& key, const Image& image) {
  if (roots_.empty() || !is_written(0)) return;
  const std::string& path = roots_.front();
  std::string problem;
  Folder root = open_root(path, Missing::create);
  if (!root.fd) {
    problem = root.problem;
  } else if (const Folder staging = open_inside(root, "tmp", Missing::create); !staging.fd) {
    problem = "tmp: " + staging.problem;
  } else {
    if (!swept_.exchange(true)) sweep_stale_files(staging);
    const Folder folder = open_entry_folder(std::move(root), image.target, key, Missing::create);
    problem = folder.fd ? publish_file(staging, folder, entry_name(image.op, key),
                                       encode_entry(key, image))
                        : folder.problem;
  }
  if (problem.empty()) return;
  ++counters_.failed_publishes;
  log_.write_once(
      LogLevel::warn, "write " + path,
      fmt::format("cannot write to cache folder {} ({}); compiled kernels stay in memory, set "
                  "TESSERA_CACHE_DIR to a private, writable folder to keep them",
                  path, problem));
}

void DiskCache::discard(const std::string& op, Target target, const CacheKey& key,
                        const std::string& reason) {
  ++counters_.corrupt_entries;
  log_.write_once(
      LogLevel::warn, "refused " + key.hex,
      fmt::format("{}: the driver refused a cached kernel ({}); compiling again", op, reason));
  if (roots_.empty() || !is_written(0)) return;
  const Folder folder =
      open_entry_folder(open_root(roots_.front(), Missing::leave), target, key, Missing::leave);
  if (!folder.fd) return;
  const FileBytes file = read_file(folder, entry_name(op, key));
  if (!file.missing) remove_if_unchanged(folder, entry_name(op, key), file.seen);
}

std::vector<RootStatus> DiskCache::status() const {
  std::vector<RootStatus> result;
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Folder folder = open_root(roots_.at(i), Missing::leave);
    RootStatus status;
    status.path = roots_.at(i);
    status.exists = !folder.missing;
    status.trusted = static_cast<bool>(folder.fd);
    status.written = is_written(i);
    status.problem = folder.problem;
    result.push_back(status);
  }
  return result;
}

}  // namespace tessera::runtime
