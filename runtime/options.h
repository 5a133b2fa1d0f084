#pragma once
// The switches of the runtime. Parsed once, when the Runtime is made; nothing reads the environment
// later.

#include <map>
#include <string>
#include <vector>

#include "runtime/log.h"

namespace tessera::runtime {

enum class CacheMode { read_write, read_only, off };

struct Options {
  /// Disk cache folders. The first is written, all are searched in order. Empty: nothing is kept on
  /// disk.
  std::vector<std::string> cache_roots;
  CacheMode cache = CacheMode::read_write;
  std::string nvrtc;     // path of libnvrtc; empty = search
  std::string arch;      // "sm_90a"; empty = the device's
  std::string dump_dir;  // CUDA text and compiler log of each kernel go here; empty = nowhere
  LogLevel log = LogLevel::warn;
  /// Toolkit folders of the environment (CUDA_HOME, CUDA_PATH), searched for libnvrtc.
  std::vector<std::string> cuda_homes;
  /// What was wrong with the environment; the Runtime logs each line once.
  std::vector<std::string> warnings;
};

using Environment = std::map<std::string, std::string>;

/// This process's variables. Empty in set-id processes: a caller of lesser rights must not choose
/// what we load.
Environment process_environment();

/// Reads the switches:
///
///   TESSERA_CACHE_DIR   folders, separated by ':'; default $XDG_CACHE_HOME/tessera,
///   ~/.cache/tessera TESSERA_CACHE       rw | ro | off TESSERA_NVRTC       path of libnvrtc.so
///   TESSERA_ARCH        sm_90a, ...: compile for this target
///   TESSERA_DUMP_DIR    folder for the CUDA text and the compiler log of each kernel
///   TESSERA_LOG         error | warn | info | debug
///
/// Never throws: a bad value keeps the default and an unknown TESSERA_ name is ignored, each with a
/// line in `warnings`.
Options options_from(const Environment& environment);

}  // namespace tessera::runtime
