#pragma once
// The switches of the runtime, parsed once when the Runtime is made. Nothing reads the environment
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

/// How the written cache folder is used.
enum class CacheMode { read_write, read_only, off };

/// Which cache folders are trusted: those that only this user and root can write, or also those of
/// this user's groups.
enum class CacheTrust { user, group };

/// The reaction to a miss in all caches. `warn` and `error` apply after Runtime::seal(); before it
/// the program warms up. With `off`, libnvrtc is never opened and kernels come from bundles.
enum class JitMode { on, warn, error, off };

/// Where a tunable kernel takes its tile sizes from: `off`: its own rule; `cached`: what was measured before
/// (the user's database, then the shipped one), else its own rule; `on`: the same, and an op's first call
/// measures what is missing. Only `on` measures.
enum class TuneMode { off, cached, on };

/// One compile or load, reported when it begins and when it has ended, on its own thread. Profiler
/// ranges (NVTX or another) go here; the library brings none.
struct StepEvent {
  std::string op;
  std::string spec;    // as spec_text() shows it
  std::string target;  // "sm_90a"
  std::string key;     // 64 digits
  std::string reason;  // "in no cache", "the driver refused the cached kernel"
  bool ended = false;
  bool failed = false;
  double ms = 0;  // wall time, set when it has ended
};

/// The options of a Runtime: the defaults, changed by the environment, changed by Runtime::configure.
struct Options {
  /// Disk cache folders and bundles (files), searched in order. New kernels are written to the
  /// first unless it is a bundle. Empty: nothing is stored on disk.
  std::vector<std::string> cache_roots;
  CacheMode cache = CacheMode::read_write;
  CacheTrust trust = CacheTrust::user;
  /// File with the site's secret. With it, entries are signed and unsigned ones are not used. Empty
  /// = none.
  std::string cache_key_file;
  /// Bounds of the written folder; 0 = none.
  int64_t cache_max_bytes = int64_t{2} << 30;
  int64_t cache_max_entries = 50000;
  /// How long a process waits for another process on this host that compiles the same kernel,
  /// before it compiles too; and for one that changes the tuned tile sizes, before that is an error.
  int peer_patience_ms = 10000;
  JitMode jit = JitMode::on;
  TuneMode tune = TuneMode::cached;
  /// Databases count for spaces with TuneSpace::changes_bits too. No shipped op has one.
  bool tune_may_change_bits = false;
  /// Folder of the user's tuned tile sizes. Empty: "tuned" below the first of cache_roots.
  std::string tune_dir = {};
  std::string record;  // every needed kernel is appended to this file; empty = nowhere
  int jobs = 0;        // threads of prepare_all; 0 = by cores and memory
  bool pdl = true;     // PDL: a kernel that waits for its predecessor may begin early
  /// Source lines in the binary, for profilers. The text lies at the path of the lines: in
  /// dump_dir, else in "source" below the written cache folder.
  bool line_info = false;
  bool check_spills = false;  // a kernel that spills registers is an error
  /// Whether calls with CPU tensors stop at the first undefined operation. Unset: those of user
  /// kernels do, those of shipped ops do not.
  std::optional<bool> traps = {};
  /// Listeners. Other callers of the kernel wait meanwhile: a listener must not call an op, nor wait for a caller.
  std::function<void(const StepEvent&)> on_compile;
  std::function<void(const StepEvent&)> on_load;  // into the driver
  std::string nvrtc;                              // path of libnvrtc; empty = search
  std::string arch;                               // "sm_90a"; empty = the device's
  /// The target whose program calls on CPU tensors run, with the arithmetic of its tensor cores where that is known.
  std::string cpu_target = "sm_90a";
  std::string dump_dir;       // CUDA text and compiler log of each kernel go here; empty = nowhere
  std::string pass_dump_dir;  // the IR of each kernel after each pass goes here; empty = nowhere
  /// A file in this folder with the name of a kernel's dump is compiled instead of that kernel's
  /// text, and not cached. Trusted as a cache folder is. For trying a change by hand.
  std::string override_dir;
  LogLevel log = LogLevel::warn;
  LogSink log_sink = print_to_stderr;  // gets the warnings about the environment too
  /// Toolkit folders of the environment (CUDA_HOME, CUDA_PATH), searched for libnvrtc.
  std::vector<std::string> cuda_homes;
  /// Folders that may hold libnvrtc, searched before those: wheels of a Python environment.
  std::vector<std::string> nvrtc_folders = {};
  /// Problems of the environment; the Runtime logs each line once.
  std::vector<std::string> warnings;
};

/// "user", "group"; "on", "warn", "error", "off".
TESSERA_API std::string_view name(CacheTrust trust);
TESSERA_API std::string_view name(JitMode mode);

using Environment = std::map<std::string, std::string>;

/// This process's variables. Empty in set-id processes: a less privileged caller must not choose
/// the code that we load.
TESSERA_API Environment process_environment();

/// A switch of the environment.
struct SwitchInfo {
  std::string_view name;     // "TESSERA_JIT"
  std::string_view meaning;  // for people, as Markdown
};
/// All switches: those of the runtime, then those that tools and tests read. The table of
/// runtime/SWITCHES.md.
TESSERA_API std::vector<SwitchInfo> switches();

/// Throws an argument error that names the option, for values that no Runtime takes: an `arch` that is no target, a `cpu_target`
/// that no kernel is made for, negative bounds, more than 256 `jobs`.
TESSERA_API void check_options(const Options& options);

/// Reads the switches of the runtime. Never throws: a bad value counts as the strictest one (kernels are not
/// compiled, the cache is not used, calls trap), else keeps the default, and an unknown TESSERA_ name is ignored,
/// each with a line in `warnings`.
TESSERA_API Options options_from(const Environment& environment);

}  // namespace tessera::runtime
