// Switches: each is read, bad values and unknown names are said, none of it throws.

#include "runtime/options.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace tessera::runtime;
using Lines = std::vector<std::string>;

TEST_CASE("every switch reaches its field") {
  const Options options = options_from({{"TESSERA_CACHE_DIR", "/a:/b::/c d"},
                                        {"TESSERA_CACHE", "ro"},
                                        {"TESSERA_NVRTC", "/x/libnvrtc.so"},
                                        {"TESSERA_ARCH", "sm_80"},
                                        {"TESSERA_DUMP_DIR", "/dump"},
                                        {"TESSERA_LOG", "debug"},
                                        {"CUDA_HOME", "/opt/cuda"},
                                        {"HOME", "/home/u"}});
  CHECK(options.cache_roots == Lines{"/a", "/b", "/c d"});
  CHECK(options.cache == CacheMode::read_only);
  CHECK(options.nvrtc == "/x/libnvrtc.so");
  CHECK(options.arch == "sm_80");
  CHECK(options.dump_dir == "/dump");
  CHECK(options.log == LogLevel::debug);
  CHECK(options.cuda_homes == Lines{"/opt/cuda"});
  CHECK(options.warnings.empty());
}

TEST_CASE("the default cache folder follows XDG_CACHE_HOME, then HOME") {
  CHECK(options_from({{"XDG_CACHE_HOME", "/xdg"}, {"HOME", "/home/u"}}).cache_roots ==
        Lines{"/xdg/tessera"});
  CHECK(options_from({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/u"}}).cache_roots ==
        Lines{"/home/u/.cache/tessera"});
}

TEST_CASE("without a cache there is no folder") {
  const Options options =
      options_from({{"TESSERA_CACHE", "off"}, {"TESSERA_CACHE_DIR", "/a"}, {"HOME", "/home/u"}});
  CHECK(options.cache_roots.empty());
  CHECK(options.cache == CacheMode::off);
}

TEST_CASE("bad values keep the default and are said") {
  const Options options = options_from({{"TESSERA_CACHE", "maybe"},
                                        {"TESSERA_ARCH", "hopper"},
                                        {"TESSERA_LOG", "loud"},
                                        {"TESSERA_CAHCE", "rw"},
                                        {"HOME", "/home/u"}});
  CHECK(options.cache == CacheMode::read_write);
  CHECK(options.arch.empty());
  CHECK(options.log == LogLevel::warn);
  CHECK(options.warnings ==
        Lines{"TESSERA_ARCH: expected a target such as sm_90a, got 'hopper'; using the device's",
              "TESSERA_CACHE: expected rw, ro or off, got 'maybe'; using rw",
              "unknown switch TESSERA_CAHCE is ignored",
              "TESSERA_LOG: expected error, warn, info or debug, got 'loud'; using warn"});
}

TEST_CASE("an empty value is no value") {
  const Options options = options_from({{"TESSERA_CACHE", ""}, {"HOME", "/home/u"}});
  CHECK(options.cache == CacheMode::read_write);
  CHECK(options.warnings.empty());
}

TEST_CASE("the log passes what its threshold lets through, and once where asked") {
  Lines lines;
  Log log(LogLevel::warn, [&](LogLevel level, std::string_view text) {
    lines.push_back(std::string(name(level)) + " " + std::string(text));
  });
  log.write(LogLevel::info, "quiet");
  log.write(LogLevel::warn, "loud");
  log.write_once(LogLevel::error, "subject", "first");
  log.write_once(LogLevel::error, "subject", "second");
  CHECK(lines == Lines{"warn loud", "error first"});
}
