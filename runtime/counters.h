#pragma once
// Counters of the runtime's work so far, readable at any time.

#include <array>
#include <cstdint>

namespace tessera::runtime {

/// Number of cache roots with a counter of their own; later roots share the last counter.
inline constexpr int kCountedRoots = 8;

/// The result of Runtime::counters().
struct CounterValues {
  int64_t memory_hits = 0;                            // kernels found in this process
  int64_t disk_hits = 0;                              // images read from a cache folder or a bundle
  std::array<int64_t, kCountedRoots> root_hits = {};  // the same per root, in their order
  int64_t misses = 0;                                 // images found neither in memory nor on disk
  int64_t compiles = 0;                               // calls of NVRTC
  int64_t compile_ms = 0;                             // wall time of the compiles
  int64_t waits = 0;             // calls that waited for another thread's compile or load
  int64_t peer_waits = 0;        // compiles that waited for another process's
  int64_t corrupt_entries = 0;   // damaged cache files
  int64_t failed_publishes = 0;  // images that could not be written to disk
  int64_t published_bytes = 0;   // written to disk
  int64_t evictions = 0;         // entries evicted to stay within the bounds
  int64_t loads = 0;             // images given to the driver
  int64_t load_ms = 0;           // wall time of the loads
};

}  // namespace tessera::runtime
