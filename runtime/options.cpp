#include "runtime/options.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "dsl/base/nearest_name.h"
#include "runtime/nvrtc/target.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

std::optional<LogLevel> log_level_from_name(std::string_view word) {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    if (name(level) == word) return level;
  }
  return std::nullopt;
}

constexpr int kMaxJobs = 256;
constexpr std::string_view kCpuTargets = "a target such as sm_80 or sm_90a";

std::string home_of_user() {
  std::array<char, 4096> storage{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, storage.data(), storage.size(), &found) != 0) return "";
  return found && found->pw_dir ? found->pw_dir : "";
}

bool is_absolute(std::string_view path) {
  return !path.empty() && path.front() == '/';
}

std::string default_cache_root(const Environment& environment) {
  const auto value = [&](const char* key) {
    const auto found = environment.find(key);
    return found == environment.end() ? std::string() : found->second;
  };
  if (is_absolute(value("XDG_CACHE_HOME"))) return value("XDG_CACHE_HOME") + "/tessera";
  if (is_absolute(value("HOME"))) return value("HOME") + "/.cache/tessera";
  const std::string home = home_of_user();
  return is_absolute(home) && home != "/" ? home + "/.cache/tessera" : "";
}

std::vector<std::string> split_paths(std::string_view list) {
  std::vector<std::string> paths;
  while (!list.empty()) {
    const size_t colon = std::min(list.find(':'), list.size());
    if (colon > 0) paths.emplace_back(list.substr(0, colon));
    list.remove_prefix(std::min(colon + 1, list.size()));
  }
  return paths;
}

void complain(Options& options, std::string_view key, std::string_view expected,
              std::string_view value, std::string_view kept) {
  options.warnings.push_back(
      fmt::format("{}: expected {}, got '{}'; using {}", key, expected, value, kept));
}

// A word that is none of `words` counts as the last, the strictest.
template <class Enum, size_t N>
void parse_word(std::string_view key, std::string_view value, std::string_view expected,
                const std::array<std::pair<const char*, Enum>, N>& words, Enum& result,
                Options& options) {
  result = words.back().second;
  for (const auto& [word, meaning] : words) {
    if (value == word) {
      result = meaning;
      return;
    }
  }
  complain(options, key, expected, value, words.back().first);
}

// "500000", "512K", "64M", "2G".
bool parse_bytes(std::string_view value, int64_t& result) {
  constexpr std::string_view kUnits = "KMG";
  int shift = 0;
  if (const size_t unit = kUnits.find(value.back()); unit != std::string_view::npos) {
    shift = 10 * static_cast<int>(unit + 1);
    value.remove_suffix(1);
  }
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (value.empty() || error != std::errc() || end != value.data() + value.size() || number < 0 ||
      number > (std::numeric_limits<int64_t>::max() >> shift)) {
    return false;
  }
  return result = number << shift, true;
}

// `strict` is what a value that cannot be read counts as.
void parse_flag(std::string_view key, std::string_view value, bool strict, bool& flag,
                Options& options) {
  const bool is_valid = value == "0" || value == "1";
  flag = is_valid ? value == "1" : strict;
  if (!is_valid) complain(options, key, "0 or 1", value, strict ? "1" : "0");
}

using Parse = void (*)(const std::string& key, const std::string& value, Options& options);
struct Switch {
  std::string_view key;
  std::string_view meaning;  // Markdown
  Parse parse;               // null: another room reads it
};

constexpr Switch kSwitches[] = {
    {"TESSERA_CACHE_DIR",
     "folders of compiled kernels and bundles, separated by `:`; the first folder is "
     "written. Default `$XDG_CACHE_HOME/tessera`, `~/.cache/tessera`",
     [](const std::string&, const std::string& value, Options& options) {
       options.cache_roots = split_paths(value);
     }},
    {"TESSERA_CACHE", "`rw` (default), `ro`, `off`",

     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, CacheMode>, 3> kWords = {
           {{"rw", CacheMode::read_write}, {"ro", CacheMode::read_only}, {"off", CacheMode::off}}};
       parse_word(key, value, "rw, ro or off", kWords, options.cache, options);
     }},
    {"TESSERA_CACHE_MAX_SIZE",
     "bound of the written folder, such as `500M` or `2G` (default); 0 = none. The "
     "least used go first",

     [](const std::string& key, const std::string& value, Options& options) {
       if (!parse_bytes(value, options.cache_max_bytes)) {
         complain(options, key, "bytes such as 500M or 2G, or 0", value, "2G");
       }
     }},
    {"TESSERA_CACHE_TRUST",
     "`user` (default): folders that only this user and root can write; `group`: "
     "also a group's",

     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, CacheTrust>, 2> kWords = {
           {{"group", CacheTrust::group}, {"user", CacheTrust::user}}};
       parse_word(key, value, "user or group", kWords, options.trust, options);
     }},
    {"TESSERA_CACHE_KEY_FILE",
     "file with a secret (16 to 4096 bytes, mode 0600 or 0640): entries and bundles "
     "are signed with it, others are not used",
     [](const std::string&, const std::string& value, Options& options) {
       options.cache_key_file = value;
     }},
    {"TESSERA_JIT", "`on` (default), `warn`, `error` (both count after `Runtime::seal()`), `off`",

     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, JitMode>, 4> kWords = {
           {{"on", JitMode::on},
            {"warn", JitMode::warn},
            {"error", JitMode::error},
            {"off", JitMode::off}}};
       parse_word(key, value, "on, warn, error or off", kWords, options.jit, options);
     }},
    {"TESSERA_TUNE",
     "`cached` (default): tile sizes that `tessera tune` found, where there are some; `off`: the "
     "rule of each kernel; `on`: as `cached`, and the first call of an op measures what is missing",
     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, TuneMode>, 3> kWords = {
           {{"on", TuneMode::on}, {"cached", TuneMode::cached}, {"off", TuneMode::off}}};
       parse_word(key, value, "off, cached or on", kWords, options.tune, options);
     }},
    {"TESSERA_TUNE_DIR",
     "folder of the tile sizes that `tessera tune` found; default `tuned` below the written cache "
     "folder",
     [](const std::string&, const std::string& value, Options& options) {
       options.tune_dir = value;
     }},
    {"TESSERA_RECORD",
     "file that gets every kernel that was needed on a GPU, and an op's for other "
     "numbers of tokens",
     [](const std::string&, const std::string& value, Options& options) {
       options.record = value;
     }},
    {"TESSERA_JOBS",
     "threads of `prepare_all` and `tessera compile`; default one per core, at most 8",

     [](const std::string& key, const std::string& value, Options& options) {
       int64_t jobs = 0;
       if (parse_bytes(value, jobs) && jobs >= 1 && jobs <= kMaxJobs) {
         options.jobs = static_cast<int>(jobs);
       } else {
         complain(options, key, fmt::format("1 to {}", kMaxJobs), value, "one per core, at most 8");
       }
     }},
    {"TESSERA_NVRTC", "path of the libnvrtc to use; no other is tried",

     [](const std::string&, const std::string& value, Options& options) { options.nvrtc = value; }},
    {"TESSERA_ARCH", "compile for this target, such as `sm_90a`, not the device's own",

     [](const std::string& key, const std::string& value, Options& options) {
       if (parse_target(value)) {
         options.arch = value;
       } else {
         complain(options, key, "a target such as sm_90a", value, "the device's");
       }
     }},
    {"TESSERA_CPU_TARGET",
     "calls on CPU tensors run the program of this target, `sm_90a` by default, with the sums of "
     "its "
     "tensor cores where they are known",
     [](const std::string& key, const std::string& value, Options& options) {
       const std::optional<Target> target = parse_target(value);
       if (target && exists(*target)) {
         options.cpu_target = value;
       } else {
         complain(options, key, kCpuTargets, value, options.cpu_target);
       }
     }},
    {"TESSERA_PDL", "`0`: no kernel begins before the one before it in its stream has ended",
     [](const std::string& key, const std::string& value, Options& options) {
       parse_flag(key, value, false, options.pdl, options);
     }},
    {"TESSERA_LINEINFO",
     "`1`: source lines in the binaries, for profilers; they name the generated "
     "CUDA, kept in the dump folder, else in `source` below the cache folder",

     [](const std::string& key, const std::string& value, Options& options) {
       parse_flag(key, value, false, options.line_info, options);
     }},
    {"TESSERA_CHECK_SPILLS", "`1`: a kernel that spills registers is an error",

     [](const std::string& key, const std::string& value, Options& options) {
       parse_flag(key, value, true, options.check_spills, options);
     }},
    {"TESSERA_TRAPS",
     "on CPU tensors: `1`: every call stops at what is undefined, as `tessera run "
     "--traps` does; `0`: none; default: those of your own kernels",

     [](const std::string& key, const std::string& value, Options& options) {
       bool traps = false;
       parse_flag(key, value, true, traps, options);
       options.traps = traps;
     }},
    {"TESSERA_DUMP_DIR",
     "folder for the CUDA text and compiler log of every kernel, from a warm cache "
     "too; of CPU calls the text, as `OP-cpu-*.cu` (`jit::cuda_text` returns it)",
     [](const std::string&, const std::string& value, Options& options) {
       options.dump_dir = value;
     }},
    {"TESSERA_DUMP",
     "folder for the IR of every kernel that is lowered, after each pass: "
     "`KERNEL-DIGEST.NN-PASS.txt`, 00 as recorded. A kernel from a warm cache is not lowered: "
     "`TESSERA_CACHE=off`",
     [](const std::string&, const std::string& value, Options& options) {
       options.pass_dump_dir = value;
     }},
    {"TESSERA_OVERRIDE_DIR",
     "a file here that has a dump's name is compiled in place of that kernel's text, "
     "and kept in no cache; as with the cache, no other user may have write access",
     [](const std::string&, const std::string& value, Options& options) {
       options.override_dir = value;
     }},
    {"TESSERA_LOG", "`error`, `warn` (default), `info`, `debug`",

     [](const std::string& key, const std::string& value, Options& options) {
       if (const auto level = log_level_from_name(value)) {
         options.log = *level;
       } else {
         complain(options, key, "error, warn, info or debug", value, "warn");
       }
     }},
    // Tools and tests read these themselves.
    {"TESSERA_PEER_DIR", "recorded times that `tessera bench` prints beside its own", nullptr},
    {"TESSERA_GOLDEN_DIR",
     "more recorded cases for the tests, beside those of `tests/golden/recorded`; "
     "default `../shared/golden` beside the repository. Tests that need absent data "
     "are skipped",
     nullptr},
    {"TESSERA_SPEC_DIR",
     "folder with the `ops.md` that the tests compare `tests/tools/contract.md` "
     "with; default `../shared/specs` beside the repository",
     nullptr},
    {"TESSERA_LONG_TESTS",
     "`1`: tests of races, kills, damage and fuzzing run in full, ops at all sizes "
     "of the benchmark, and compute-sanitizer",
     nullptr},
    {"TESSERA_APPROVE", "`1`: the tests rewrite the approved CUDA in `tests/golden`", nullptr},
    {"TESSERA_FUZZ_PROGRAMS", "how many random programs `test_fuzz` runs", nullptr},
    {"TESSERA_FUZZ_ROLES", "how many random kernels with roles `test_fuzz` runs", nullptr},
    {"TESSERA_FUZZ_CALLS",
     "how many random calls `test_signatures` and `tests/python/test_fuzz.py` make", nullptr},
    {"TESSERA_FUZZ_FIRST",
     "seed of the first random program or call; a failing test prints its seed", nullptr},
    {"TESSERA_TEST_EVERY_TARGET",
     "`1`: tests compile a kernel whose text two targets share for both, not for the first "
     "alone",
     nullptr},
    {"TESSERA_TEST_ON", "`gpu`: a test program skips everything where there is no GPU", nullptr},
    {"TESSERA_TEST_THOROUGH",
     "`1`, as under ctest: language tests compile for the oldest and the newest "
     "target too",
     nullptr},
};

const Switch* find_switch(std::string_view key) {
  for (const Switch& known : kSwitches) {
    if (known.key == key) return &known;
  }
  return nullptr;
}

}  // namespace

std::string_view name(CacheTrust trust) {
  return trust == CacheTrust::user ? "user" : "group";
}

std::string_view name(JitMode mode) {
  switch (mode) {
    case JitMode::on:
      return "on";
    case JitMode::warn:
      return "warn";
    case JitMode::error:
      return "error";
    case JitMode::off:
      return "off";
  }
  return "on";
}

std::vector<SwitchInfo> switches() {
  std::vector<SwitchInfo> result;
  for (const Switch& one : kSwitches) result.push_back({one.key, one.meaning});
  return result;
}

Environment process_environment() {
  Environment result;
  if (getauxval(AT_SECURE) != 0) return result;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return result;
}

void check_options(const Options& options) {
  const auto refuse = [](const std::string& option, std::string expected, std::string got) {
    constexpr size_t kMost = 80;
    if (got.size() > kMost) got = got.substr(0, kMost) + "...";
    raise(ErrorKind::argument, "", fmt::format("option '{}' has a wrong value", option),
          {.argument = option,
           .expected = std::move(expected),
           .got = std::move(got),
           .code = "VALUE"});
  };
  if (!options.arch.empty() && !parse_target(options.arch)) {
    refuse("arch", "sm_80, sm_89, sm_90a, ...", options.arch);
  }
  if (const auto target = parse_target(options.cpu_target); !target || !exists(*target)) {
    refuse("cpu_target", std::string(kCpuTargets),
           options.cpu_target.empty() ? "nothing" : options.cpu_target);
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int kMostMs = std::numeric_limits<int>::max();
  const auto check = [&](const char* option, int64_t value, int64_t most) {
    if (value >= 0 && value <= most) return;
    refuse(option, most < kMostMs ? fmt::format("0 to {}", most) : std::string("0 or more"),
           fmt::format("{}", value));
  };
  check("cache_max_bytes", options.cache_max_bytes, kMost);
  check("cache_max_entries", options.cache_max_entries, kMost);
  check("peer_patience_ms", options.peer_patience_ms, kMostMs);
  check("jobs", options.jobs, kMaxJobs);
}

namespace {

constexpr std::string_view kPrefix = "TESSERA_";

/// "; did you mean 'TESSERA_CACHE'?", or "". The prefix counts as no letters.
std::string known_switch_near(std::string_view key) {
  std::vector<std::string> words;
  for (const Switch& known : kSwitches) {
    if (known.key.starts_with(kPrefix)) words.emplace_back(known.key.substr(kPrefix.size()));
  }
  const std::string near = nearest_name(key.substr(kPrefix.size()), words);
  return near.empty() ? "" : fmt::format("; did you mean '{}{}'?", kPrefix, near);
}

}  // namespace

Options options_from(const Environment& environment) {
  Options options;
  for (const auto& [key, value] : environment) {
    if (!key.starts_with(kPrefix) || value.empty()) continue;
    if (const Switch* known = find_switch(key)) {
      if (known->parse != nullptr) known->parse(key, value, options);
    } else {
      options.warnings.push_back(
          fmt::format("unknown switch {} is ignored{}", key, known_switch_near(key)));
    }
  }
  for (const char* key : {"CUDA_HOME", "CUDA_PATH"}) {
    const auto found = environment.find(key);
    if (found != environment.end() && is_absolute(found->second)) {
      options.cuda_homes.push_back(found->second);
    }
  }
  if (options.cache == CacheMode::off) {
    options.cache_roots.clear();
  } else if (options.cache_roots.empty()) {
    const std::string root = default_cache_root(environment);
    if (root.empty()) {
      options.warnings.push_back(
          "no home folder: compiled kernels are kept in memory only; set TESSERA_CACHE_DIR");
    } else {
      options.cache_roots.push_back(root);
    }
  }
  return options;
}

}  // namespace tessera::runtime
