// Switches: each is read, bad values and unknown names are said, none of it throws.

#include "runtime/options.h"

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/log_writer.h"
#include "tests/support/catch.h"

using namespace tessera::runtime;
using Lines = std::vector<std::string>;

TEST_CASE("every switch reaches its field") {
  const Options options = options_from({{"TESSERA_CACHE_DIR", "/a:/b::/c d"},
                                        {"TESSERA_CACHE", "ro"},
                                        {"TESSERA_NVRTC", "/x/libnvrtc.so"},
                                        {"TESSERA_ARCH", "sm_80"},
                                        {"TESSERA_CPU_TARGET", "sm_100a"},
                                        {"TESSERA_DUMP_DIR", "/dump"},
                                        {"TESSERA_DUMP", "/passes"},
                                        {"TESSERA_OVERRIDE_DIR", "/mine"},
                                        {"TESSERA_LOG", "debug"},
                                        {"TESSERA_CACHE_MAX_SIZE", "3M"},
                                        {"TESSERA_CACHE_TRUST", "group"},
                                        {"TESSERA_JIT", "error"},
                                        {"TESSERA_TUNE", "off"},
                                        {"TESSERA_TUNE_DIR", "/tuned"},
                                        {"TESSERA_RECORD", "/record"},
                                        {"TESSERA_JOBS", "5"},
                                        {"TESSERA_LINEINFO", "1"},
                                        {"TESSERA_PDL", "0"},
                                        {"TESSERA_TRAPS", "1"},
                                        {"TESSERA_CHECK_SPILLS", "1"},
                                        {"CUDA_HOME", "/opt/cuda"},
                                        {"HOME", "/home/u"}});
  CHECK(options.cache_roots == Lines{"/a", "/b", "/c d"});
  CHECK(options.cache == CacheMode::read_only);
  CHECK(options.tune == TuneMode::off);
  CHECK(options.tune_dir == "/tuned");
  CHECK(options.nvrtc == "/x/libnvrtc.so");
  CHECK(options.arch == "sm_80");
  CHECK(options.cpu_target == "sm_100a");
  CHECK(options.dump_dir == "/dump");
  CHECK(options.pass_dump_dir == "/passes");
  CHECK(options.override_dir == "/mine");
  CHECK(options.log == LogLevel::debug);
  CHECK(options.cache_max_bytes == 3 << 20);
  CHECK(options.trust == CacheTrust::group);
  CHECK(options.jit == JitMode::error);
  CHECK(options.record == "/record");
  CHECK(options.jobs == 5);
  CHECK(options.line_info);
  CHECK_FALSE(options.pdl);
  CHECK(options.traps == true);
  CHECK(options.check_spills);
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

TEST_CASE("a mistyped safety switch opens nothing: TESSERA_JIT=of compiles nothing") {
  const Options options = options_from({{"TESSERA_CACHE", "maybe"},
                                        {"TESSERA_ARCH", "hopper"},
                                        {"TESSERA_LOG", "loud"},
                                        {"TESSERA_CAHCE", "rw"},
                                        {"TESSERA_CPU_TARGET", "sm_75"},
                                        {"TESSERA_CACHE_MAX_SIZE", "2T"},
                                        {"TESSERA_CACHE_TRUST", "all"},
                                        {"TESSERA_JIT", "of"},
                                        {"TESSERA_JOBS", "0"},
                                        {"TESSERA_LINEINFO", "yes"},
                                        {"TESSERA_TUNE", "of"},
                                        {"TESSERA_PDL", "off"},
                                        {"TESSERA_CHECK_SPILLS", "on"},
                                        {"TESSERA_TRAPS", "yes"},
                                        {"HOME", "/home/u"}});
  CHECK(options.jit == JitMode::off);
  CHECK(options.cache == CacheMode::off);
  CHECK(options.cache_roots.empty());
  CHECK(options.trust == CacheTrust::user);
  CHECK(options.tune == TuneMode::off);
  CHECK_FALSE(options.pdl);
  CHECK(options.check_spills);
  CHECK(options.traps == true);
  CHECK(options.cache_max_bytes == int64_t{2} << 30);
  CHECK(options.arch.empty());
  CHECK(options.cpu_target == "sm_90a");
  CHECK(options.log == LogLevel::warn);
  CHECK(options.warnings ==
        Lines{"TESSERA_ARCH: expected a target such as sm_90a, got 'hopper'; using the device's",
              "TESSERA_CACHE: expected rw, ro or off, got 'maybe'; using off",
              "TESSERA_CACHE_MAX_SIZE: expected bytes such as 500M or 2G, or 0, got '2T'; using 2G",
              "TESSERA_CACHE_TRUST: expected user or group, got 'all'; using user",
              "unknown switch TESSERA_CAHCE is ignored; did you mean 'TESSERA_CACHE'?",
              "TESSERA_CHECK_SPILLS: expected 0 or 1, got 'on'; using 1",
              "TESSERA_CPU_TARGET: expected a target such as sm_80 or sm_90a, got 'sm_75'; using "
              "sm_90a",
              "TESSERA_JIT: expected on, warn, error or off, got 'of'; using off",
              "TESSERA_JOBS: expected 1 to 256, got '0'; using one per core, at most 8",
              "TESSERA_LINEINFO: expected 0 or 1, got 'yes'; using 0",
              "TESSERA_LOG: expected error, warn, info or debug, got 'loud'; using warn",
              "TESSERA_PDL: expected 0 or 1, got 'off'; using 0",
              "TESSERA_TRAPS: expected 0 or 1, got 'yes'; using 1",
              "TESSERA_TUNE: expected off, cached or on, got 'of'; using off"});
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

TEST_CASE("a sink that throws loses its line and makes nothing fail") {
  int num_lines = 0;
  Log log(LogLevel::warn, [&](LogLevel, std::string_view) {
    ++num_lines;
    throw std::runtime_error("the sink is broken");
  });
  CHECK_NOTHROW(log.write(LogLevel::warn, "first"));
  CHECK_NOTHROW(log.write_once(LogLevel::warn, "subject", "second"));
  CHECK(num_lines == 2);
}

TEST_CASE("a line for a full stderr is lost and no error") {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) TESSERA_SKIP("no /dev/full");
  const int kept = dup(STDERR_FILENO);
  REQUIRE(dup2(full, STDERR_FILENO) == STDERR_FILENO);
  CHECK_NOTHROW(print_to_stderr(LogLevel::warn, "nowhere to go"));
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(full);
}
