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

#include "runtime/nvrtc/target.h"

namespace tessera::runtime {
namespace {

std::optional<LogLevel> log_level_from_name(std::string_view word) {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    if (name(level) == word) return level;
  }
  return std::nullopt;
}

// Switches that other rooms read (tests and tools): known here only so that typos can be told from
// them.
constexpr std::array<std::string_view, 10> kOtherSwitches = {
    "TESSERA_APPROVE",    "TESSERA_FUZZ_CALLS",   "TESSERA_FUZZ_FIRST", "TESSERA_FUZZ_PROGRAMS",
    "TESSERA_GOLDEN_DIR", "TESSERA_LONG_TESTS",   "TESSERA_PEER_DIR",   "TESSERA_SPEC_DIR",
    "TESSERA_TEST_ON",    "TESSERA_TEST_THOROUGH"};
constexpr int kMaxJobs = 256;

template <size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

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

template <class Enum, size_t N>
bool parse_word(std::string_view value, const std::array<std::pair<const char*, Enum>, N>& words,
                Enum& result) {
  for (const auto& [word, meaning] : words) {
    if (value == word) return result = meaning, true;
  }
  return false;
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

void parse_flag(std::string_view key, std::string_view value, bool& flag, Options& options) {
  if (value == "0" || value == "1") {
    flag = value == "1";
  } else {
    complain(options, key, "0 or 1", value, flag ? "1" : "0");
  }
}

using Parse = void (*)(const std::string& key, const std::string& value, Options& options);
struct Switch {
  std::string_view key;
  Parse parse;
};

constexpr Switch kSwitches[] = {
    {"TESSERA_CACHE_DIR", [](const std::string&, const std::string& value,
                             Options& options) { options.cache_roots = split_paths(value); }},
    {"TESSERA_CACHE",
     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, CacheMode>, 3> kWords = {
           {{"rw", CacheMode::read_write}, {"ro", CacheMode::read_only}, {"off", CacheMode::off}}};
       if (!parse_word(value, kWords, options.cache)) {
         complain(options, key, "rw, ro or off", value, "rw");
       }
     }},
    {"TESSERA_CACHE_MAX_SIZE",
     [](const std::string& key, const std::string& value, Options& options) {
       if (!parse_bytes(value, options.cache_max_bytes)) {
         complain(options, key, "bytes such as 500M or 2G, or 0", value, "2G");
       }
     }},
    {"TESSERA_CACHE_TRUST",
     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, CacheTrust>, 2> kWords = {
           {{"user", CacheTrust::user}, {"group", CacheTrust::group}}};
       if (!parse_word(value, kWords, options.trust)) {
         complain(options, key, "user or group", value, "user");
       }
     }},
    {"TESSERA_CACHE_KEY_FILE", [](const std::string&, const std::string& value,
                                  Options& options) { options.cache_key_file = value; }},
    {"TESSERA_JIT",
     [](const std::string& key, const std::string& value, Options& options) {
       constexpr std::array<std::pair<const char*, JitMode>, 4> kWords = {
           {{"on", JitMode::on},
            {"warn", JitMode::warn},
            {"error", JitMode::error},
            {"off", JitMode::off}}};
       if (!parse_word(value, kWords, options.jit)) {
         complain(options, key, "on, warn, error or off", value, "on");
       }
     }},
    {"TESSERA_RECORD", [](const std::string&, const std::string& value,
                          Options& options) { options.record = value; }},
    {"TESSERA_JOBS",
     [](const std::string& key, const std::string& value, Options& options) {
       int64_t jobs = 0;
       if (parse_bytes(value, jobs) && jobs >= 1 && jobs <= kMaxJobs) {
         options.jobs = static_cast<int>(jobs);
       } else {
         complain(options, key, fmt::format("1 to {}", kMaxJobs), value, "one per core, at most 8");
       }
     }},
    {"TESSERA_NVRTC",
     [](const std::string&, const std::string& value, Options& options) { options.nvrtc = value; }},
    {"TESSERA_ARCH",
     [](const std::string& key, const std::string& value, Options& options) {
       if (parse_target(value)) {
         options.arch = value;
       } else {
         complain(options, key, "a target such as sm_90a", value, "the device's");
       }
     }},
    {"TESSERA_PDL", [](const std::string& key, const std::string& value,
                       Options& options) { parse_flag(key, value, options.pdl, options); }},
    {"TESSERA_LINEINFO",
     [](const std::string& key, const std::string& value, Options& options) {
       parse_flag(key, value, options.line_info, options);
     }},
    {"TESSERA_CHECK_SPILLS",
     [](const std::string& key, const std::string& value, Options& options) {
       parse_flag(key, value, options.check_spills, options);
     }},
    {"TESSERA_TRAPS",
     [](const std::string& key, const std::string& value, Options& options) {
       if (value == "0" || value == "1") {
         options.traps = value == "1";
       } else {
         complain(options, key, "0 or 1", value, "1 for own kernels, 0 for shipped ops");
       }
     }},
    {"TESSERA_DUMP_DIR", [](const std::string&, const std::string& value,
                            Options& options) { options.dump_dir = value; }},
    {"TESSERA_OVERRIDE_DIR", [](const std::string&, const std::string& value,
                                Options& options) { options.override_dir = value; }},
    {"TESSERA_LOG",
     [](const std::string& key, const std::string& value, Options& options) {
       if (const auto level = log_level_from_name(value)) {
         options.log = *level;
       } else {
         complain(options, key, "error, warn, info or debug", value, "warn");
       }
     }},
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

Options options_from(const Environment& environment) {
  Options options;
  for (const auto& [key, value] : environment) {
    if (key.rfind("TESSERA_", 0) != 0 || value.empty()) continue;
    if (const Switch* known = find_switch(key)) {
      known->parse(key, value, options);
    } else if (!contains(kOtherSwitches, key)) {
      options.warnings.push_back(fmt::format("unknown switch {} is ignored", key));
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
