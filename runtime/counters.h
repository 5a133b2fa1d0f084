#pragma once
// What the runtime did so far, readable at any time.

#include <array>
#include <atomic>
#include <cstdint>

namespace tessera::runtime {

/// Cache roots with a counter of their own; later ones share the last.
inline constexpr int kCountedRoots = 8;

/// What Runtime::counters() returns.
struct CounterValues {
  int64_t memory_hits = 0;                            // kernels found in this process
  int64_t disk_hits = 0;                              // images read from a cache folder or a bundle
  std::array<int64_t, kCountedRoots> root_hits = {};  // the same, per root in their order
  int64_t misses = 0;                                 // images found in neither
  int64_t compiles = 0;                               // calls of NVRTC
  int64_t compile_ms = 0;                             // their wall time
  int64_t waits = 0;             // calls that waited for another thread's compile or load
  int64_t peer_waits = 0;        // compiles that waited for another process's
  int64_t corrupt_entries = 0;   // cache files that were not what they should be
  int64_t failed_publishes = 0;  // images that could not be written to disk
  int64_t published_bytes = 0;   // written to disk
  int64_t evictions = 0;         // entries removed to stay within the bounds
  int64_t loads = 0;             // images given to the driver
  int64_t load_ms = 0;           // wall time of that
};

/// The same numbers, counted from any thread.
struct Counters {
  std::atomic<int64_t> memory_hits = 0, disk_hits = 0, misses = 0, compiles = 0, compile_us = 0,
                       waits = 0, peer_waits = 0, corrupt_entries = 0, failed_publishes = 0,
                       published_bytes = 0, evictions = 0, loads = 0, load_us = 0;
  std::array<std::atomic<int64_t>, kCountedRoots> root_hits = {};

  CounterValues values() const {
    CounterValues now;
    now.memory_hits = memory_hits;
    now.disk_hits = disk_hits;
    now.misses = misses;
    now.compiles = compiles;
    now.compile_ms = compile_us / 1000;
    now.waits = waits;
    now.peer_waits = peer_waits;
    now.corrupt_entries = corrupt_entries;
    now.failed_publishes = failed_publishes;
    now.published_bytes = published_bytes;
    now.evictions = evictions;
    now.loads = loads;
    now.load_ms = load_us / 1000;
    for (size_t i = 0; i < root_hits.size(); ++i) now.root_hits[i] = root_hits[i];
    return now;
  }
};

}  // namespace tessera::runtime
