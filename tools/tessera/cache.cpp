// tessera cache: looks into the folders of compiled kernels, checks and empties them.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>

#include "runtime/cache/manifest.h"
#include "runtime/runtime.h"
#include "tools/lib/cache_view.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct CacheOptions {
  std::string key, other, out = ".";
};

std::vector<CacheFolder> cache_here() {
  return open_cache(runtime::Runtime::instance().options());
}

int verify() {
  const Verification result = verify_cache(cache_here());
  for (const std::string& line : result.damaged) tell(fmt::format("tessera: {}\n", line));
  const bool printed =
      print(fmt::format("{} entries are whole, {} damaged\n", result.good, result.damaged.size()));
  return printed && result.damaged.empty() ? kOk : kFailed;
}

int shrink(bool to_nothing) {
  const runtime::Options& options = runtime::Runtime::instance().options();
  int64_t removed = 0;
  for (const CacheFolder& cache : cache_here()) {
    if (to_nothing) {
      for (const runtime::StoredEntry& entry : cache.entries) {
        removed += runtime::remove_entry(cache.folder, entry) ? 1 : 0;
      }
      continue;
    }
    const int64_t count = runtime::prune(
        cache.folder, {options.cache_max_bytes, options.cache_max_entries}, std::time(nullptr));
    if (count < 0) {
      tell(fmt::format("tessera: {}: another process is pruning it, or it is read-only\n",
                       cache.path));
    }
    removed += std::max<int64_t>(count, 0);
  }
  return print(fmt::format("{} entries removed\n", removed)) ? kOk : kFailed;
}

int explain_keys(const CacheOptions& options) {
  const std::vector<CacheFolder> cache = cache_here();
  const runtime::Entry a = reading_arguments([&] { return find_entry(cache, options.key); });
  if (options.other.empty()) return print(explain(a)) ? kOk : kFailed;
  const runtime::Entry b = reading_arguments([&] { return find_entry(cache, options.other); });
  return print(explain(a, b)) ? kOk : kFailed;
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
  const auto add = [&](const char* name, const char* purpose, std::function<int()> action) {
    CLI::App* one = sub->add_subcommand(name, purpose);
    one->callback([&command, action = std::move(action)] { command = action; });
    return one;
  };
  add("ls", "every entry", [] { return print(cache_list(cache_here())) ? kOk : kFailed; });
  add("du", "entries and bytes", [] { return print(cache_usage(cache_here())) ? kOk : kFailed; });
  add("verify", "read every entry and check its digests", verify);
  add("prune", "remove the least used beyond the bounds", [] { return shrink(false); });
  add("clear", "remove every entry", [] { return shrink(true); });
  CLI::App* explain_sub = add("explain", "what is in a key, or what makes two differ",
                              [options] { return explain_keys(*options); });
  explain_sub->add_option("a", options->key, "the first digits of a key")->required();
  explain_sub->add_option("b", options->other, "of another one");
  CLI::App* extract_sub = add("extract", "write an entry's cubin, CUDA text and manifest as files",
                              [options] { return extract(*options); });
  extract_sub->add_option("key", options->key, "the first digits of a key")->required();
  extract_sub->add_option("--out", options->out, "folder (default .)");
}

}  // namespace tessera::tools
