#pragma once
// The version and stamp of this copy of Tessera, and the other copies that the process has loaded.

#include <string>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// One copy of Tessera in this process.
struct LoadedCopy {
  std::string version;  // "0.2.0"
  std::string stamp;    // code_stamp(): 64 digits, equal for equal kernel sources
  std::string path;     // the program or library that holds it
};

/// The result of runtime::build_info().
struct BuildInfo {
  std::string version;
  std::string stamp;
  bool shared = false;  // libtessera.so; else archives, linked into a program or another library
  std::string path;     // the program or library that holds this function
  std::vector<LoadedCopy> others;
};

/// Copies share nothing in memory: each has its own options, counters and loaded kernels. They share the disk cache.
///
/// Example: for (const auto& other : runtime::build_info().others) log(other.path + " " + other.version);
TESSERA_API BuildInfo build_info();

}  // namespace tessera::runtime
