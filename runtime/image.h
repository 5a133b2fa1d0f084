#pragma once
// A compiled kernel in memory, with all facts that a launch needs.

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/kernel_source.h"
#include "runtime/cache/key.h"
#include "runtime/nvrtc/target.h"

namespace tessera::runtime {

/// The report of ptxas about a kernel.
struct KernelResources {
  int registers = 0;          // per thread
  int64_t spill_bytes = 0;    // spill stores, per thread
  int64_t stack_bytes = 0;    // per thread
  int64_t static_shared = 0;  // per block
  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct Image {
  std::string op;
  std::string entry;
  Target target;
  std::vector<KernelParam> params;
  int threads = 0;
  int64_t shared_bytes = 0;          // dynamic, per block
  int cluster = 1;                   // blocks, along x
  std::vector<std::string> options;  // of KernelSource
  bool waits_for_previous = false;   // of KernelSource
  bool cooperative = false;          // of KernelSource
  KernelResources resources;
  std::string cubin;
  std::string source;    // the CUDA text
  std::string log;       // of the compiler
  std::string compiler;  // NVRTC identity
  CacheKey key;          // what it was made from, and by which compiler
};

/// Copies what a source and its image have in common: names, parameters, launch facts, options.
TESSERA_API void copy_facts(const KernelSource& source, Image& image);
TESSERA_API KernelSource facts_of(const Image& image);

}  // namespace tessera::runtime
