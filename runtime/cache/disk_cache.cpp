#include "runtime/cache/disk_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "runtime/cache/cache_root.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/sha256.h"
#include "runtime/cache/site_key.h"

namespace tessera::runtime {
namespace {

std::array<std::string, 3> entry_folders(Target target, const CacheKey& key) {
  return {fmt::format("v{}", kCacheSchema), to_string(target), key.hex.substr(0, 2)};
}

std::string entry_name(const std::string& op, const CacheKey& key) {
  return fmt::format("{}-{}.tsk", op, key.hex);
}

// Opens the folder of an entry below an opened root. Stops at the first folder that is missing or
// not trusted.
Folder open_entry_folder(const Folder& root, Target target, const CacheKey& key, Missing missing) {
  const auto names = entry_folders(target, key);
  Folder folder = open_inside(root, names[0], missing);
  for (size_t i = 1; i < names.size() && folder.fd; ++i) {
    folder = open_inside(folder, names.at(i), missing);
  }
  return folder;
}

std::string secret_of(const Options& options, Log& log) {
  if (options.cache_key_file.empty()) return "";
  std::string problem;
  const std::string secret = read_site_key(options.cache_key_file, problem);
  if (secret.empty()) {
    log.write_once(LogLevel::warn, "site key",
                   fmt::format("no kernel is taken from or kept in a cache: {} {} "
                               "(TESSERA_CACHE_KEY_FILE)",
                               options.cache_key_file, problem));
  }
  return secret;
}

}  // namespace

std::string entry_path(const std::string& op, Target target, const CacheKey& key) {
  std::string path;
  for (const std::string& folder : entry_folders(target, key)) path += folder + "/";
  return path + entry_name(op, key);
}

DiskCache::DiskCache(const Options& options, Log& log, Counters& counters)
    : secret_(secret_of(options, log)),
      site_(secret_.empty() ? "" : to_hex(hmac_sha256(secret_, "name of the site")).substr(0, 16)),
      roots_(open_roots(options, secret_)),
      mode_(options.cache),
      trust_(options.trust),
      limits_{options.cache_max_bytes, options.cache_max_entries},
      log_(log),
      counters_(counters) {}

std::vector<DiskCache::Root> DiskCache::open_roots(const Options& options,
                                                   const std::string& secret) {
  std::vector<Root> roots;
  // A site that signs its kernels recompiles rather than take unsigned ones.
  const bool lacks_secret = !options.cache_key_file.empty() && secret.empty();
  if (options.cache == CacheMode::off || lacks_secret) return roots;
  for (const std::string& path : options.cache_roots) {
    Root root;
    root.path = path;
    root.is_bundle = is_bundle_path(path);
    if (root.is_bundle) root.bundle = Bundle::open(path, options.trust, root.problem, secret);
    roots.push_back(std::move(root));
  }
  return roots;
}

bool DiskCache::is_written(size_t root_idx) const {
  return root_idx == 0 && !roots_.empty() && !roots_.front().is_bundle &&
         mode_ == CacheMode::read_write;
}

void DiskCache::report_unused(const std::string& path, const std::string& problem) {
  const char* const kind = path.ends_with(".tsb") ? "bundle" : "cache folder";
  const bool is_open = problem.find("writable") != std::string::npos;
  log_.write_once(LogLevel::warn, "root " + path,
                  fmt::format("{} {} is not used: it {}; {}", kind, path, problem,
                              is_open ? "chmod go-w it, or accept a group's with "
                                        "TESSERA_CACHE_TRUST=group"
                                      : "name another with TESSERA_CACHE_DIR"));
}

void DiskCache::report_corrupt(const std::string& op, const std::string& path,
                               const std::string& reason, const std::string& leftover) {
  ++counters_.corrupt_entries;
  log_.write_once(LogLevel::warn, "entry " + path,
                  fmt::format("{}: cache entry {} cannot be used ({}); compiling again{}{}", op,
                              path, reason, leftover.empty() ? "" : "; ", leftover));
}

std::optional<Image> DiskCache::find(const std::string& op, Target target, const KernelKey& key) {
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Root& root = roots_.at(i);
    std::optional<Image> image;
    if (root.is_bundle) {
      image = find_in_bundle(root, op, key.kernel);
    } else if (!key.entry.hex.empty()) {
      image = find_in_folder(i, op, target, key.entry);
    }
    if (!image) continue;
    ++counters_.disk_hits;
    ++counters_.root_hits.at(std::min<size_t>(i, kCountedRoots - 1));
    return image;
  }
  return std::nullopt;
}

bool DiskCache::in_bundle(const CacheKey& kernel) const {
  return std::any_of(roots_.begin(), roots_.end(), [&](const Root& root) {
    return root.bundle && root.bundle->contains(kernel);
  });
}

std::optional<Image> DiskCache::find_in_bundle(const Root& root, const std::string& op,
                                               const CacheKey& kernel) {
  if (!root.bundle) {
    report_unused(root.path, root.problem);
    return std::nullopt;
  }
  std::string problem;
  auto image = root.bundle->find(kernel, problem);
  if (!problem.empty()) {
    ++counters_.corrupt_entries;
    const std::string place = root.path + ":" + kernel.hex;
    log_.write_once(LogLevel::warn, "entry " + place,
                    fmt::format("{}: cache entry {} cannot be used ({})", op, place, problem));
  }
  return image;
}

std::optional<Image> DiskCache::find_in_folder(size_t root_idx, const std::string& op,
                                               Target target, const CacheKey& key) {
  const std::string& given = roots_.at(root_idx).path;
  const CacheRoot root = open_cache_root(given, trust_);
  if (!root.folder.fd) {
    if (!root.folder.missing) report_unused(given, root.folder.problem);
    return std::nullopt;
  }
  const Folder folder = open_entry_folder(root.folder, target, key, Missing::leave);
  if (!folder.fd) {
    if (!folder.missing) report_unused(given, folder.problem);
    return std::nullopt;
  }
  const std::string name = entry_name(op, key);
  const FileBytes file = read_file(folder, name);
  if (file.missing) return std::nullopt;
  const bool may_change = is_written(root_idx) && root.is_marked;
  std::string reason = file.problem;
  if (file.bytes) {
    if (auto image = decode_entry(*file.bytes, key, reason, secret_)) {
      if (may_change) mark_used(folder, name, file.seen, std::time(nullptr));
      return image;
    }
  }
  const std::string leftover = may_change ? clear_place(folder, name, file.seen) : "";
  report_corrupt(op, root.path + "/" + entry_path(op, target, key), reason, leftover);
  return std::nullopt;
}

std::string DiskCache::encode(const CacheKey& key, const Image& image) const {
  return encode_entry(key, image, secret_);
}

std::string DiskCache::problem_of(const std::string& bytes) const {
  std::string reason;
  return decode_entry(bytes, reason, secret_) ? "" : reason;
}

void DiskCache::publish(const CacheKey& key, const Image& image) {
  if (!is_written(0)) return;
  const CacheRoot root = open_root_to_write();
  if (!root.folder.fd) return;
  const std::string& path = roots_.front().path;
  const Folder staging = open_inside(root.folder, kStagingFolder, Missing::create);
  if (!staging.fd) return report_unwritten("write " + path, "tmp: " + staging.problem);
  if (!swept_.exchange(true)) sweep_stale_files(staging);
  const Folder folder = open_entry_folder(root.folder, image.target, key, Missing::create);
  const std::string bytes = encode(key, image);
  const std::string problem =
      folder.fd ? publish_file(staging, folder, entry_name(image.op, key), bytes) : folder.problem;
  if (!problem.empty()) return report_unwritten("write " + path, problem);
  counters_.published_bytes += static_cast<int64_t>(bytes.size());
  keep_within_bounds(root.folder);
}

// Reports why no root can be written, or that entries go to a folder of the cache's own beside the
// user's files.
CacheRoot DiskCache::open_root_to_write() {
  const std::string& given = roots_.front().path;
  CacheRoot root = open_written_root(given, trust_, Missing::create);
  if (!root.folder.fd) {
    report_unwritten("root " + given, root.folder.problem);
  } else if (root.is_new) {
    log_.write(LogLevel::warn,
               fmt::format("cache folder {} holds other files: kernels are kept in {}, and nothing "
                           "else there is touched",
                           given, root.path));
  }
  return root;
}

// Uses one subject per folder, so that a folder that cannot be opened is reported once.
void DiskCache::report_unwritten(const std::string& subject, const std::string& problem) {
  ++counters_.failed_publishes;
  const bool is_full = problem.find(std::strerror(ENOSPC)) != std::string::npos ||
                       problem.find(std::strerror(EDQUOT)) != std::string::npos;
  log_.write_once(
      LogLevel::warn, subject,
      fmt::format("cannot write to cache folder {} ({}); compiled kernels stay in memory, {} to "
                  "keep them",
                  roots_.front().path, problem,
                  is_full ? "make room there, or set TESSERA_CACHE_DIR to a folder with more,"
                          : "set TESSERA_CACHE_DIR to a private, writable folder"));
}

std::string DiskCache::text_folder() {
  if (!is_written(0)) return "";
  const CacheRoot root = open_root_to_write();
  return root.folder.fd ? root.path + "/" + kTextFolder : "";
}

void DiskCache::keep_text(const std::string& name, const std::string& text) {
  if (!is_written(0)) return;
  const CacheRoot root = open_root_to_write();
  if (!root.folder.fd) return;
  const Folder staging = open_inside(root.folder, kStagingFolder, Missing::create);
  const Folder folder = open_inside(root.folder, kTextFolder, Missing::create);
  const std::string problem = !staging.fd  ? staging.problem
                              : !folder.fd ? folder.problem
                                           : publish_file(staging, folder, name, text);
  if (!problem.empty()) report_unwritten("write " + roots_.front().path, problem);
}

// Walking a large folder takes long: done at most once a minute, and only after a compile, which
// takes longer.
void DiskCache::keep_within_bounds(const Folder& root) {
  if (limits_.bytes == 0 && limits_.entries == 0) return;
  constexpr int64_t kSecondsBetween = 60;
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(since_start).count();
  int64_t due = next_prune_;
  if (now < due || !next_prune_.compare_exchange_strong(due, now + kSecondsBetween)) return;
  const int64_t removed = prune(root, limits_, std::time(nullptr));
  if (removed <= 0) return;
  counters_.evictions += removed;
  log_.write(LogLevel::info,
             fmt::format("cache folder {}: removed {} entries to stay within {} "
                         "bytes and {} entries",
                         roots_.front().path, removed, limits_.bytes, limits_.entries));
}

void DiskCache::discard(const std::string& op, Target target, const CacheKey& key,
                        const std::string& reason) {
  ++counters_.corrupt_entries;
  log_.write_once(LogLevel::warn, "refused " + key.hex,
                  fmt::format("{}: the driver refused a cached kernel ({}){}", op, reason,
                              key.hex.empty() ? "" : "; compiling again"));
  if (!is_written(0)) return;
  const CacheRoot root = open_cache_root(roots_.front().path, trust_);
  if (!root.folder.fd || !root.is_marked) return;
  const Folder folder = open_entry_folder(root.folder, target, key, Missing::leave);
  if (!folder.fd) return;
  const FileBytes file = read_file(folder, entry_name(op, key));
  if (!file.missing) remove_if_unchanged(folder, entry_name(op, key), file.seen);
}

std::vector<RootStatus> DiskCache::status() const {
  std::vector<RootStatus> result;
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Root& root = roots_.at(i);
    RootStatus status;
    status.path = root.path;
    status.bundle = root.is_bundle;
    status.written = is_written(i);
    status.network = is_on_network(root.path);
    if (root.is_bundle) {
      status.exists = access(root.path.c_str(), F_OK) == 0;
      status.trusted = root.bundle.has_value();
      status.problem = root.problem;
    } else {
      const CacheRoot opened = is_written(i) ? open_written_root(root.path, trust_, Missing::leave)
                                             : open_cache_root(root.path, trust_);
      status.path = opened.path;
      status.exists = !opened.folder.missing;
      status.trusted = static_cast<bool>(opened.folder.fd);
      status.problem = opened.folder.problem;
    }
    result.push_back(status);
  }
  return result;
}

}  // namespace tessera::runtime
