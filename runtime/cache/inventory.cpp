#include "runtime/cache/inventory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "dsl/base/target.h"
#include "runtime/cache/cache_root.h"
#include "runtime/cache/key.h"
#include "runtime/cache/manifest.h"

namespace tessera::runtime {
namespace {

constexpr time_t kHour = 3600;
constexpr std::string_view kEntrySuffix = ".tsk";
constexpr std::string_view kTextSuffix = ".cu";
constexpr size_t kKeyDigits = 64;
constexpr size_t kTextDigits = 8;

bool are_digits(std::string_view text, size_t count) {
  return text.size() == count &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Removes `suffix` from the end of `name`. False if `name` does not end so.
bool take_suffix(std::string_view& name, std::string_view suffix) {
  if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix) {
    return false;
  }
  name.remove_suffix(suffix.size());
  return true;
}

// "<op>-<64 digits>.tsk", in the folder of its first digits.
bool is_entry_name(std::string_view name, std::string_view shard) {
  const size_t dash = name.find('-');
  if (!take_suffix(name, kEntrySuffix) || dash >= name.size()) return false;
  const std::string_view digits = name.substr(dash + 1);
  return is_identifier(name.substr(0, dash)) && are_digits(digits, kKeyDigits) &&
         digits.substr(0, shard.size()) == shard;
}

// "<op>-<target>-<8 digits>.cu".
bool is_text_name(std::string_view name) {
  const size_t first = name.find('-');
  const size_t last = name.rfind('-');
  if (!take_suffix(name, kTextSuffix) || first >= last || last >= name.size()) return false;
  return is_identifier(name.substr(0, first)) &&
         parse_target(name.substr(first + 1, last - first - 1)).has_value() &&
         are_digits(name.substr(last + 1), kTextDigits);
}

// Compares the distance to now: a wrong clock, here or on a server, leaves times in the future.
bool is_recent(time_t then, time_t now) {
  return then > now - kHour && then < now + kHour;
}

bool is_current(const StoredEntry& entry) {
  return entry.schema == fmt::format("v{}", kCacheSchema);
}

std::vector<std::string> all_names_in(const Folder& folder) {
  return names_in(folder).value_or(std::vector<std::string>());
}

// Appends the files of a folder to `entries`; `place` describes the folder.
void add_files(const Folder& folder, const StoredEntry& place, std::vector<StoredEntry>& entries) {
  for (const std::string& name : all_names_in(folder)) {
    const bool is_ours =
        place.shard.empty() ? is_text_name(name) : is_entry_name(name, place.shard);
    if (!is_ours) continue;
    StoredEntry entry = place;
    entry.name = name;
    if (fstatat(folder.fd.get(), name.c_str(), &entry.seen, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(entry.seen.st_mode)) {
      continue;
    }
    entry.bytes = entry.seen.st_size;
    entry.used = entry.seen.st_mtim.tv_sec;
    entries.push_back(std::move(entry));
  }
}

}  // namespace

std::string StoredEntry::path() const {
  return target.empty() ? schema + "/" + name : schema + "/" + target + "/" + shard + "/" + name;
}

std::string StoredEntry::key() const {
  const size_t tail = kKeyDigits + kEntrySuffix.size();
  return shard.empty() || name.size() < tail ? "" : name.substr(name.size() - tail, kKeyDigits);
}

std::string StoredEntry::op() const {
  return key().empty() ? "" : name.substr(0, name.find('-'));
}

std::vector<StoredEntry> list_entries(const Folder& root, std::vector<std::string>* problems) {
  std::vector<StoredEntry> entries;
  const auto open_listed = [&](const Folder& parent, const std::string& name,
                               const std::string& path) {
    Folder folder = open_inside(parent, name, Missing::leave);
    if (problems && !folder.fd && !folder.missing) {
      problems->push_back(path + " " + folder.problem);
    }
    return folder;
  };
  const Folder texts = open_listed(root, kTextFolder, kTextFolder);
  if (texts.fd) add_files(texts, {kTextFolder, "", "", "", 0, 0, {}}, entries);
  for (const std::string& schema : all_names_in(root)) {
    if (!is_schema_name(schema)) continue;
    const Folder schema_folder = open_listed(root, schema, schema);
    if (!schema_folder.fd) continue;
    for (const std::string& target : all_names_in(schema_folder)) {
      if (!parse_target(target)) continue;
      const std::string path = schema + "/" + target;
      const Folder target_folder = open_listed(schema_folder, target, path);
      if (!target_folder.fd) continue;
      for (const std::string& shard : all_names_in(target_folder)) {
        if (!are_digits(shard, 2)) continue;
        const Folder folder = open_listed(target_folder, shard, path + "/" + shard);
        if (folder.fd) add_files(folder, {schema, target, shard, "", 0, 0, {}}, entries);
      }
    }
  }
  return entries;
}

Folder open_folder_of(const Folder& root, const StoredEntry& entry) {
  Folder schema = open_inside(root, entry.schema, Missing::leave);
  if (!schema.fd) return {};
  if (entry.target.empty()) return schema;
  const Folder target = open_inside(schema, entry.target, Missing::leave);
  return target.fd ? open_inside(target, entry.shard, Missing::leave) : Folder();
}

bool remove_entry(const Folder& root, const StoredEntry& entry) {
  const Folder folder = open_folder_of(root, entry);
  return folder.fd && remove_if_unchanged(folder, entry.name, entry.seen);
}

int64_t prune(const Folder& root, CacheLimits limits, time_t now) {
  // The lock saves work: two processes may prune at once. A full disk, where its file cannot be
  // made, or a file system without locks is no reason to keep everything.
  const Descriptor lock(
      openat(root.fd.get(), kPruneLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock && errno != ENOSPC && errno != EDQUOT) return -1;
  // Another user of a shared folder must be able to take the lock as well.
  if (lock && root.trust == CacheTrust::group) static_cast<void>(fchmod(lock.get(), 0660));
  if (lock && lock_file(lock.get()) == FileLock::held_by_another) return -1;
  std::vector<StoredEntry> entries = list_entries(root);
  int64_t bytes = 0;
  for (const StoredEntry& entry : entries) bytes += entry.bytes;
  auto count = static_cast<int64_t>(entries.size());
  const auto rank = [&](const StoredEntry& entry) {
    const bool is_to_come = entry.used > now && !is_recent(entry.used, now);
    return std::tuple(is_current(entry), is_to_come ? 0 : entry.used, entry.name);
  };
  std::sort(entries.begin(), entries.end(),
            [&](const StoredEntry& a, const StoredEntry& b) { return rank(a) < rank(b); });
  int64_t removed = 0;
  for (const StoredEntry& entry : entries) {
    const bool fits = (limits.bytes == 0 || bytes <= limits.bytes) &&
                      (limits.entries == 0 || count <= limits.entries);
    if (fits) break;
    if (is_recent(entry.used, now) || !remove_entry(root, entry)) continue;
    bytes -= entry.bytes;
    --count;
    ++removed;
  }
  return removed;
}

void mark_used(const Folder& folder, const std::string& name, const struct stat& seen, time_t now) {
  if (is_recent(seen.st_mtim.tv_sec, now)) return;
  constexpr std::array<timespec, 2> kNow = {{{0, UTIME_OMIT}, {0, UTIME_NOW}}};
  // The file may be gone by now: nothing is lost then.
  static_cast<void>(utimensat(folder.fd.get(), name.c_str(), kNow.data(), AT_SYMLINK_NOFOLLOW));
}

}  // namespace tessera::runtime
