#include "tools/lib/images/cache_view.h"

#include <fmt/format.h>

#include <ctime>
#include <map>
#include <tuple>
#include <utility>

#include "dsl/base/error.h"
#include "runtime/cache/cache_root.h"
#include "runtime/cache/site_key.h"

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

/// "grid (rows / 4), 128 threads": the first line of a generated kernel, which tells the kernels of an
/// op apart. A hand-written text has no such line.
std::string launch_of(const runtime::Image& image) {
  constexpr std::string_view kPrefix = "tessera_";
  if (!image.entry.starts_with(kPrefix)) return fmt::format("{} threads", image.threads);
  const std::string begin = fmt::format("// {}: grid ", image.entry.substr(kPrefix.size()));
  const size_t at = image.source.find(begin);
  if (at == std::string::npos) return fmt::format("{} threads", image.threads);
  const size_t grid = at + begin.size() - std::string_view("grid ").size();
  return image.source.substr(grid, image.source.find('\n', grid) - grid);
}

/// "x bf16, out e4m3, rows i32"
std::string parameters_of(const runtime::Image& image) {
  std::string text;
  for (const KernelParam& param : image.params) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", param.name, name(param.dtype));
  }
  return text;
}

/// The inputs of the key, and facts of the kernel in words: a Spec is bytes.
std::map<std::string, std::string> fields_of(const runtime::Entry& entry) {
  std::map<std::string, std::string> fields = {{"launch", launch_of(entry.image)},
                                               {"parameters", parameters_of(entry.image)}};
  for (const runtime::KeyField& field : entry.key.fields) {
    std::string& value = fields[field.name];  // options may come several times
    value += (value.empty() ? "" : " ") + field.value;
  }
  return fields;
}

std::string secret_of(const runtime::Options& options) {
  if (options.cache_key_file.empty()) return "";
  std::string problem;
  std::string secret = runtime::read_site_key(options.cache_key_file, problem);
  if (secret.empty()) {
    fail("the site's secret cannot be used", "a private file of 16 to 4096 bytes",
         options.cache_key_file + " " + problem);
  }
  return secret;
}

CacheFolder opened(runtime::CacheRoot root, const std::string& secret) {
  if (!root.folder.fd) {
    fail(fmt::format("cache folder {} cannot be used", root.path), "a folder that can be trusted",
         "it " + root.folder.problem);
  }
  CacheFolder cache{root.path, std::move(root.folder), {}, secret};
  cache.entries = runtime::list_entries(cache.folder, &cache.problems);
  for (std::string& problem : cache.problems) problem = cache.path + "/" + problem;
  return cache;
}

CacheFolder opened_bundle(const std::string& path, runtime::CacheTrust trust,
                          const std::string& secret) {
  std::string problem;
  auto bundle = runtime::Bundle::open(path, trust, problem, secret);
  if (!bundle) {
    fail(fmt::format("bundle {} cannot be used", path), "a whole bundle that can be trusted",
         "it " + problem);
  }
  return {path, {}, {}, secret, std::move(bundle)};
}

// Calls `use` with each kernel of a bundle, its place and its entry or what is wrong with it.
template <class Use>
void for_each_kernel(const CacheFolder& cache, const Use& use) {
  for (size_t i = 0; cache.bundle && i < cache.bundle->size(); ++i) {
    std::string problem;
    const auto entry = cache.bundle->at(i, problem);
    use(i, entry, problem);
  }
}

}  // namespace

std::vector<CacheFolder> open_cache(const runtime::Options& options) {
  std::vector<CacheFolder> cache;
  const std::string secret = secret_of(options);
  for (const std::string& path : options.cache_roots) {
    if (runtime::is_bundle_path(path)) {
      cache.push_back(opened_bundle(path, options.trust, secret));
      continue;
    }
    runtime::CacheRoot root = runtime::open_cache_root(path, options.trust);
    if (!root.folder.missing) cache.push_back(opened(std::move(root), secret));
  }
  return cache;
}

std::optional<CacheFolder> open_written_cache(const runtime::Options& options) {
  const std::string& path = options.cache_roots.front();
  const auto open = [&](runtime::Missing missing) {
    return runtime::open_written_root(path, options.trust, missing);
  };
  runtime::CacheRoot root = open(runtime::Missing::leave);
  if (root.folder.missing && root.path == path) return std::nullopt;
  if (root.folder.missing) {
    throw Error({.kind = ErrorKind::unsupported,
                 .what = fmt::format("{} holds other files and no cache of Tessera", path),
                 .expected = "a folder that Tessera has made or marked (CACHEDIR.TAG)",
                 .got = "neither that nor " + root.path});
  }
  // A cache of a version without markers gets its marker now.
  if (root.folder.fd && !root.is_marked) root = open(runtime::Missing::create);
  return opened(std::move(root), secret_of(options));
}

TextTable cache_list(const std::vector<CacheFolder>& cache) {
  TextTable table({{"op", Align::left},
                   {"target", Align::left},
                   {"bytes", Align::right},
                   {"hours", Align::right},
                   {"launch", Align::left},
                   {"key", Align::left}});
  const time_t now = std::time(nullptr);
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& entry : folder.entries) {
      std::string reason;
      const auto read = read_entry(folder, entry, reason);  // `verify` names the damaged ones
      table.row({entry.op().empty() ? entry.name : entry.op(), entry.target,
                 fmt::format("{}", entry.bytes), fmt::format("{}", (now - entry.used) / 3600),
                 read ? launch_of(read->image) : "(not read)", entry.key().substr(0, 16)});
    }
    for_each_kernel(folder, [&](size_t idx, const auto& entry, const std::string&) {
      table.row({entry ? entry->image.op : "(damaged)",
                 entry ? runtime::to_string(entry->image.target) : "",
                 fmt::format("{}", folder.bundle->bytes_at(idx)), "-",
                 entry ? launch_of(entry->image) : "", entry ? entry->key.hex.substr(0, 16) : ""});
    });
  }
  return table;
}

TextTable cache_usage(const std::vector<CacheFolder>& cache) {
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
    for_each_kernel(folder, [&](size_t idx, const auto& entry, const std::string&) {
      auto& [entries, bytes] =
          sums[{"bundle", entry ? runtime::to_string(entry->image.target) : "(damaged)"}];
      ++entries;
      bytes += folder.bundle->bytes_at(idx);
    });
    for (const auto& [kind, sum] : sums) {
      table.row({folder.path, kind.first, kind.second, fmt::format("{}", sum.first),
                 fmt::format("{}", sum.second)});
    }
  }
  return table;
}

Verification verify_cache(const std::vector<CacheFolder>& cache,
                          const std::function<void(size_t, size_t)>& progress) {
  Verification result;
  size_t total = 0, done = 0;
  for (const CacheFolder& folder : cache) {
    total += folder.entries.size() + (folder.bundle ? folder.bundle->size() : 0);
  }
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& stored : folder.entries) {
      progress(++done, total);
      if (stored.schema != fmt::format("v{}", runtime::kCacheSchema)) continue;
      std::string reason;
      if (read_entry(folder, stored, reason)) {
        ++result.good;
      } else {
        result.damaged.push_back(fmt::format("{}/{}: {}", folder.path, stored.path(), reason));
      }
    }
    for_each_kernel(folder, [&](size_t idx, const auto& entry, const std::string& problem) {
      progress(++done, total);
      if (entry) {
        ++result.good;
      } else {
        result.damaged.push_back(fmt::format("{}, kernel {}: {}", folder.path, idx, problem));
      }
    });
  }
  return result;
}

runtime::Entry find_entry(const std::vector<CacheFolder>& cache, const std::string& key) {
  std::vector<std::pair<const CacheFolder*, const runtime::StoredEntry*>> found;
  std::vector<runtime::Entry> bundled;
  for (const CacheFolder& folder : cache) {
    for (const runtime::StoredEntry& stored : folder.entries) {
      if (!key.empty() && stored.key().rfind(key, 0) == 0) found.emplace_back(&folder, &stored);
    }
    for_each_kernel(folder, [&](size_t, const auto& entry, const std::string&) {
      if (!key.empty() && entry && entry->key.hex.rfind(key, 0) == 0) bundled.push_back(*entry);
    });
  }
  if (found.size() + bundled.size() != 1) {
    fail("argument 'key' does not name one entry", "the first digits of a key of tessera cache ls",
         fmt::format("'{}', which begins {} keys", key, found.size() + bundled.size()));
  }
  if (!bundled.empty()) return std::move(bundled.front());
  std::string reason;
  auto entry = read_entry(*found.front().first, *found.front().second, reason);
  if (!entry) fail(fmt::format("entry {} is damaged", key), "a whole entry", reason);
  return *std::move(entry);
}

TextTable explain(const runtime::Entry& a, const runtime::Entry& b) {
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
  return table;
}

TextTable explain(const runtime::Entry& entry) {
  TextTable table({{"input", Align::left}, {entry.key.hex.substr(0, 16), Align::left}});
  for (const auto& [name, value] : fields_of(entry)) table.row({name, value});
  return table;
}

}  // namespace tessera::tools
