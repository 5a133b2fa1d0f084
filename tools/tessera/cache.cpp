// tessera cache: looks into the folders of compiled kernels, checks and empties them.

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "dsl/base/error.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/manifest.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/lib/images/cache_view.h"
#include "tools/lib/text/text_table.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct CacheOptions {
  std::string key, other, out = ".";
  bool dry_run = false, json = false;
};

std::vector<CacheFolder> cache_here() {
  return open_cache(runtime::Runtime::instance().options());
}

/// Names the folders that were left out; true if there are none.
bool tell_problems(const CacheFolder& cache) {
  for (const std::string& problem : cache.problems) {
    tell(fmt::format("tessera: not read: {}\n", problem));
  }
  return cache.problems.empty();
}
bool tell_problems(const std::vector<CacheFolder>& cache) {
  bool is_whole = true;
  for (const CacheFolder& folder : cache) is_whole = tell_problems(folder) && is_whole;
  return is_whole;
}

/// A table for people, or for machines.
int print_table(const TextTable& table, const CacheOptions& options) {
  return print(options.json ? table.json() : table.text()) ? kOk : kFailed;
}

/// A table of the whole cache.
int print_all(TextTable (*table)(const std::vector<CacheFolder>&), const CacheOptions& options) {
  const std::vector<CacheFolder> cache = cache_here();
  const bool is_whole = tell_problems(cache);
  const int result = print_table(table(cache), options);
  return is_whole ? result : kFailed;
}

int verify(const CacheOptions& options) {
  const std::vector<CacheFolder> cache = cache_here();
  const Verification result = verify_cache(cache, [](size_t done, size_t total) {
    show_progress(fmt::format("{} of {} entries", done, total));
  });
  show_progress("");
  const bool is_whole = tell_problems(cache) && result.damaged.empty();
  if (options.json) {
    const nlohmann::ordered_json json = {{"whole", result.good}, {"damaged", result.damaged}};
    const bool printed = print(json.dump(2) + "\n");
    return printed && is_whole ? kOk : kFailed;
  }
  for (const std::string& line : result.damaged) tell(fmt::format("tessera: {}\n", line));
  const bool printed =
      print(fmt::format("{} entries are whole, {} damaged\n", result.good, result.damaged.size()));
  return printed && is_whole ? kOk : kFailed;
}

/// The folder that programs write, if it is there: what is only read is left alone.
std::optional<CacheFolder> written_cache() {
  const std::vector<runtime::RootStatus> roots = runtime::Runtime::instance().cache_roots();
  if (!roots.empty() && roots.front().written) {
    return open_written_cache(runtime::Runtime::instance().options());
  }
  throw Error({.kind = ErrorKind::unsupported,
               .what = "no cache folder is written, and what is only read stays as it is",
               .expected = "TESSERA_CACHE=rw, and a folder first in TESSERA_CACHE_DIR",
               .got = roots.empty()          ? "no cache"
                      : roots.front().bundle ? "a bundle, " + roots.front().path
                                             : "TESSERA_CACHE=ro"});
}

bool is_there(const CacheFolder& cache, const runtime::StoredEntry& entry) {
  const runtime::Folder folder = runtime::open_folder_of(cache.folder, entry);
  struct stat info = {};
  return folder.fd && fstatat(folder.fd.get(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

int clear(const CacheOptions& options) {
  const std::optional<CacheFolder> cache = written_cache();
  if (!cache) return print("0 entries removed\n") ? kOk : kFailed;
  const bool is_whole = tell_problems(*cache);
  if (options.dry_run) {
    int64_t bytes = 0;
    for (const runtime::StoredEntry& entry : cache->entries) bytes += entry.bytes;
    return print(fmt::format("{} entries of {} bytes would be removed from {}\n",
                             cache->entries.size(), bytes, cache->path)) &&
                   is_whole
               ? kOk
               : kFailed;
  }
  int64_t removed = 0;
  int64_t kept = 0;
  for (const runtime::StoredEntry& entry : cache->entries) {
    if (runtime::remove_entry(cache->folder, entry)) {
      ++removed;
    } else if (is_there(*cache, entry)) {
      ++kept;
    }
  }
  if (kept > 0) tell(fmt::format("tessera: {} entries cannot be removed\n", kept));
  const bool printed = print(fmt::format("{} entries removed\n", removed));
  return printed && kept == 0 && is_whole ? kOk : kFailed;
}

int prune() {
  const runtime::Options& options = runtime::Runtime::instance().options();
  const std::optional<CacheFolder> cache = written_cache();
  const int64_t removed =
      cache ? runtime::prune(cache->folder, {options.cache_max_bytes, options.cache_max_entries},
                             std::time(nullptr))
            : 0;
  if (removed < 0) {
    tell(fmt::format("tessera: {}: another process is pruning it, or it cannot be written\n",
                     cache->path));
    return kFailed;
  }
  return print(fmt::format("{} entries removed\n", removed)) ? kOk : kFailed;
}

int explain_keys(const CacheOptions& options) {
  const std::vector<CacheFolder> cache = cache_here();
  const runtime::Entry a = reading_arguments([&] { return find_entry(cache, options.key); });
  if (options.other.empty()) return print_table(explain(a), options);
  const runtime::Entry b = reading_arguments([&] { return find_entry(cache, options.other); });
  return print_table(explain(a, b), options);
}

int extract(const CacheOptions& options) {
  const std::vector<CacheFolder> cache = cache_here();
  const runtime::Entry entry = reading_arguments([&] { return find_entry(cache, options.key); });
  const std::string stem =
      fmt::format("{}/{}-{}", options.out, entry.image.op, entry.key.hex.substr(0, 8));
  write_file(stem + ".cubin", entry.image.cubin);
  write_file(stem + ".cu", entry.image.source);
  write_file(stem + ".json", runtime::encode_manifest(entry.key, entry.image) + "\n");
  return print(fmt::format("{0}.cubin\n{0}.cu\n{0}.json\n", stem)) ? kOk : kFailed;
}

}  // namespace

void add_cache(CLI::App& app, Command& command) {
  auto options = std::make_shared<CacheOptions>();
  CLI::App* sub = app.add_subcommand("cache", "the compiled kernels on disk");
  sub->require_subcommand(1);
  sub->footer(
      "Examples:\n"
      "  tessera cache ls --json\n"
      "  tessera cache verify\n"
      "  tessera cache clear --dry-run");
  const auto add = [&](const char* name, const char* purpose, std::function<int()> action) {
    CLI::App* one = sub->add_subcommand(name, purpose);
    one->callback([&command, action = std::move(action)] { command = action; });
    return one;
  };
  const auto add_json = [&](CLI::App* one) {
    one->add_flag("--json", options->json, "for machines");
  };
  add_json(add("ls", "every entry", [options] { return print_all(cache_list, *options); }));
  add_json(add("du", "entries and bytes", [options] { return print_all(cache_usage, *options); }));
  add_json(add("verify", "read every entry and check its digests",
               [options] { return verify(*options); }));
  add("prune", "remove the least used beyond the bounds", prune);
  CLI::App* clear_sub = add("clear", "remove every entry", [options] { return clear(*options); });
  clear_sub->add_flag("--dry-run", options->dry_run, "say what would be removed, remove nothing");
  CLI::App* explain_sub = add("explain", "what is in a key, or what makes two differ",
                              [options] { return explain_keys(*options); });
  add_json(explain_sub);
  explain_sub->add_option("a", options->key, "the first digits of a key")->required();
  explain_sub->add_option("b", options->other, "of another one");
  CLI::App* extract_sub = add("extract", "write an entry's cubin, CUDA text and manifest as files",
                              [options] { return extract(*options); });
  extract_sub->add_option("key", options->key, "the first digits of a key")->required();
  extract_sub->add_option("--out", options->out, "folder (default .)");
}

}  // namespace tessera::tools
