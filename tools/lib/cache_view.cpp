#include "tools/lib/cache_view.h"

#include <fmt/format.h>

#include <ctime>
#include <map>
#include <tuple>
#include <utility>

#include "dsl/base/error.h"
#include "runtime/cache/site_key.h"
#include "tools/lib/text_table.h"

namespace tessera::tools {
namespace {

[[noreturn]] void fail(std::string what, std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = std::move(what),
               .expected = std::move(expected),
               .got = std::move(got)});
}

std::optional<runtime::Entry> read_entry(const CacheFolder& cache,
                                         const runtime::StoredEntry& stored, std::string& reason) {
  const runtime::Folder folder = runtime::open_folder_of(cache.folder, stored);
  if (!folder.fd) return reason = folder.problem, std::nullopt;
  const runtime::FileBytes file = runtime::read_file(folder, stored.name);
  if (!file.bytes) return reason = file.problem, std::nullopt;
  auto entry = runtime::decode_entry(*file.bytes, reason, cache.secret);
  if (entry && entry->key.hex != stored.key()) return reason = "holds another key", std::nullopt;
  return entry;
}

std::map<std::string, std::string> fields_of(const runtime::Entry& entry) {
  std::map<std::string, std::string> fields;
  for (const runtime::KeyField& field : entry.key.fields) {
    std::string& value = fields[field.name];  // options may come several times
    value += (value.empty() ? "" : " ") + field.value;
  }
  return fields;
}

}  // namespace

std::vector<CacheFolder> open_cache(const runtime::Options& options) {
  std::vector<CacheFolder> cache;
  std::string secret;
  if (!options.cache_key_file.empty()) {
    std::string problem;
    secret = runtime::read_site_key(options.cache_key_file, problem);
    if (secret.empty()) {
      fail("the site's secret cannot be used", "a private file of 16 to 4096 bytes",
           options.cache_key_file + " " + problem);
    }
  }
  for (const std::string& path : options.cache_roots) {
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) continue;
    runtime::Folder folder = runtime::open_root(path, runtime::Missing::leave, options.trust);
    if (folder.missing) continue;
    if (!folder.fd) {
      fail(fmt::format("cache folder {} cannot be used", path), "a folder that can be trusted",
           "it " + folder.problem);
    }
    CacheFolder opened{path, std::move(folder), {}, secret};
    opened.entries = runtime::list_entries(opened.folder);
    cache.push_back(std::move(opened));
  }
  return cache;
}

std::string cache_list(const std::vector<CacheFolder>& cache) {
  TextTable table({{"op", Align::left},
                   {"target", Align::left},
                   {"bytes", Align::right},
                   {"hours", Align::right},
                   {"key", Align::left}});
  const time_t now = std::time(nullptr);
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& entry : folder.entries) {
      table.row({entry.op().empty() ? entry.name : entry.op(), entry.target,
                 fmt::format("{}", entry.bytes), fmt::format("{}", (now - entry.used) / 3600),
                 entry.key().substr(0, 16)});
    }
  }
  return table.text();
}

std::string cache_usage(const std::vector<CacheFolder>& cache) {
  TextTable table({{"folder", Align::left},
                   {"schema", Align::left},
                   {"target", Align::left},
                   {"entries", Align::right},
                   {"bytes", Align::right}});
  for (const CacheFolder& folder : cache) {
    std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> sums;
    for (const runtime::StoredEntry& entry : folder.entries) {
      auto& [entries, bytes] = sums[{entry.schema, entry.target}];
      ++entries;
      bytes += entry.bytes;
    }
    for (const auto& [kind, sum] : sums) {
      table.row({folder.path, kind.first, kind.second, fmt::format("{}", sum.first),
                 fmt::format("{}", sum.second)});
    }
  }
  return table.text();
}

Verification verify_cache(const std::vector<CacheFolder>& cache) {
  Verification result;
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& stored : folder.entries) {
      if (stored.schema != fmt::format("v{}", runtime::kCacheSchema)) continue;
      std::string reason;
      if (read_entry(folder, stored, reason)) {
        ++result.good;
      } else {
        result.damaged.push_back(fmt::format("{}/{}: {}", folder.path, stored.path(), reason));
      }
    }
  }
  return result;
}

runtime::Entry find_entry(const std::vector<CacheFolder>& cache, const std::string& key) {
  std::vector<std::pair<const CacheFolder*, const runtime::StoredEntry*>> found;
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& stored : folder.entries) {
      if (!key.empty() && stored.key().rfind(key, 0) == 0) found.emplace_back(&folder, &stored);
    }
  }
  if (found.size() != 1) {
    fail("argument 'key' does not name one entry", "the first digits of a key of tessera cache ls",
         fmt::format("'{}', which begins {} keys", key, found.size()));
  }
  std::string reason;
  auto entry = read_entry(*found.front().first, *found.front().second, reason);
  if (!entry) fail(fmt::format("entry {} is damaged", key), "a whole entry", reason);
  return *std::move(entry);
}

std::string explain(const runtime::Entry& a, const runtime::Entry& b) {
  const auto of_a = fields_of(a);
  auto of_b = fields_of(b);
  TextTable table({{"input", Align::left},
                   {a.key.hex.substr(0, 16), Align::left},
                   {b.key.hex.substr(0, 16), Align::left}});
  for (const auto& [name, value] : of_a) {
    const std::string other = std::exchange(of_b[name], "");
    of_b.erase(name);
    if (value != other) table.row({name, value, other});
  }
  for (const auto& [name, value] : of_b) table.row({name, "", value});
  return table.text();
}

std::string explain(const runtime::Entry& entry) {
  TextTable table({{"input", Align::left}, {entry.key.hex.substr(0, 16), Align::left}});
  for (const auto& [name, value] : fields_of(entry)) table.row({name, value});
  return table.text();
}

}  // namespace tessera::tools
