#include "runtime/options.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/nvrtc/target.h"

namespace tessera::runtime {
namespace {

// Switches that other rooms read (tests and tools): known here only so that typos can be told from
// them.
constexpr std::array<std::string_view, 8> kOtherSwitches = {
    "TESSERA_APPROVE",  "TESSERA_FUZZ_FIRST", "TESSERA_FUZZ_PROGRAMS", "TESSERA_GOLDEN_DIR",
    "TESSERA_PEER_DIR", "TESSERA_SPEC_DIR",   "TESSERA_TEST_THOROUGH", "TESSERA_TEST_ON"};
constexpr std::array<std::string_view, 6> kSwitches = {"TESSERA_CACHE_DIR", "TESSERA_CACHE",
                                                       "TESSERA_NVRTC",     "TESSERA_ARCH",
                                                       "TESSERA_DUMP_DIR",  "TESSERA_LOG"};

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

void parse_cache_mode(std::string_view word, Options& options) {
  if (word == "rw") {
    options.cache = CacheMode::read_write;
  } else if (word == "ro") {
    options.cache = CacheMode::read_only;
  } else if (word == "off") {
    options.cache = CacheMode::off;
  } else {
    options.warnings.push_back(
        fmt::format("TESSERA_CACHE: expected rw, ro or off, got '{}'; using rw", word));
  }
}

void parse_switch(const std::string& key, const std::string& value, Options& options) {
  if (key == "TESSERA_CACHE_DIR") {
    options.cache_roots = split_paths(value);
  } else if (key == "TESSERA_CACHE") {
    parse_cache_mode(value, options);
  } else if (key == "TESSERA_NVRTC") {
    options.nvrtc = value;
  } else if (key == "TESSERA_DUMP_DIR") {
    options.dump_dir = value;
  } else if (key == "TESSERA_ARCH") {
    if (parse_target(value)) {
      options.arch = value;
    } else {
      options.warnings.push_back(fmt::format(
          "TESSERA_ARCH: expected a target such as sm_90a, got '{}'; using the device's", value));
    }
  } else if (key == "TESSERA_LOG") {
    if (const auto level = log_level_from_name(value)) {
      options.log = *level;
    } else {
      options.warnings.push_back(fmt::format(
          "TESSERA_LOG: expected error, warn, info or debug, got '{}'; using warn", value));
    }
  }
}

}  // namespace

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
    if (contains(kSwitches, key)) {
      parse_switch(key, value, options);
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
