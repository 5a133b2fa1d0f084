#pragma once
// The switches of the runtime. Parsed once, when the Runtime is made; nothing reads the environment
// later.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "runtime/log.h"

namespace tessera::runtime {

/// What the written cache folder is used for.
enum class CacheMode { read_write, read_only, off };

/// Whose cache folders are used: those that only this user and root can write, or also those of a
/// group that this user is in.
enum class CacheTrust { user, group };

/// What a kernel that is in no cache means. `warn` and `error` count from Runtime::seal() on: until
/// then the program is warming up. With `off` libnvrtc is never opened; kernels come from bundles.
enum class JitMode { on, warn, error, off };

/// One compile or one load, told when it begins and again when it has ended, on the thread that does
/// it: also the place for ranges of a profiler (NVTX or another), which the library brings none of.
struct StepEvent {
  std::string op;
  std::string spec;    // as spec_text() shows it
  std::string target;  // "sm_90a"
  std::string key;     // 64 digits
  std::string reason;  // "in no cache", "the driver refused the cached kernel"
  bool ended = false;
  bool failed = false;
  double ms = 0;  // wall time, when it has ended
};

/// What a Runtime is made with: the defaults, changed by the environment, changed by Runtime::configure.
struct Options {
  /// Disk cache folders and bundles (files). The first is written unless it is a bundle, all are
  /// searched in order. Empty: nothing is kept on disk.
  std::vector<std::string> cache_roots;
  CacheMode cache = CacheMode::read_write;
  CacheTrust trust = CacheTrust::user;
  /// File with the site's secret, which signs entries: unsigned ones are not used. Empty = none.
  std::string cache_key_file;
  /// Bounds of the written folder; 0 = none.
  int64_t cache_max_bytes = int64_t{2} << 30;
  int64_t cache_max_entries = 50000;
  /// How long a process waits for another one on this host that compiles the same kernel, before it
  /// compiles as well.
  int peer_patience_ms = 10000;
  JitMode jit = JitMode::on;
  std::string record;  // every kernel that was needed is appended to this file; empty = nowhere
  int jobs = 0;        // threads of prepare_all; 0 = by cores and memory
  bool pdl = true;     // kernels that wait for the one before them may begin early
  /// Source lines in the binary, for profilers; the text is where the lines say it is: in dump_dir,
  /// else in "source" below the written cache folder.
  bool line_info = false;
  bool check_spills = false;  // a kernel that spills registers is an error
  /// Calls with CPU tensors stop at the first thing that is undefined. Unset: those of a user's own
  /// kernels do, those of shipped ops do not.
  std::optional<bool> traps = {};
  std::function<void(const StepEvent&)> on_compile;
  std::function<void(const StepEvent&)> on_load;  // into the driver
  std::string nvrtc;                              // path of libnvrtc; empty = search
  std::string arch;                               // "sm_90a"; empty = the device's
  std::string dump_dir;       // CUDA text and compiler log of each kernel go here; empty = nowhere
  std::string pass_dump_dir;  // the IR of each kernel after each pass goes here; empty = nowhere
  /// A file of this folder that has a dump's name is compiled in place of that kernel's text, and
  /// kept in no cache. Trusted as a cache folder is. For trying a change by hand.
  std::string override_dir;
  LogLevel log = LogLevel::warn;
  LogSink log_sink = print_to_stderr;  // gets the warnings about the environment too
  /// Toolkit folders of the environment (CUDA_HOME, CUDA_PATH), searched for libnvrtc.
  std::vector<std::string> cuda_homes;
  /// Folders that may hold libnvrtc, searched before those: the wheels of a Python.
  std::vector<std::string> nvrtc_folders = {};
  /// What was wrong with the environment; the Runtime logs each line once.
  std::vector<std::string> warnings;
};

/// "user", "group"; "on", "warn", "error", "off".
TESSERA_API std::string_view name(CacheTrust trust);
TESSERA_API std::string_view name(JitMode mode);

using Environment = std::map<std::string, std::string>;

/// This process's variables. Empty in set-id processes: a caller of lesser rights must not choose
/// what we load.
TESSERA_API Environment process_environment();

/// A switch of the environment.
struct SwitchInfo {
  std::string_view name;     // "TESSERA_JIT"
  std::string_view meaning;  // for people, as Markdown
};
/// All of them: those of the runtime, then those that tools and tests read themselves. The table of
/// runtime/SWITCHES.md.
TESSERA_API std::vector<SwitchInfo> switches();

/// Reads the switches of the runtime. Never throws: a bad value keeps the default and an unknown TESSERA_
/// name is ignored, each with a line in `warnings`.
TESSERA_API Options options_from(const Environment& environment);

}  // namespace tessera::runtime
