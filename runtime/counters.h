#pragma once
// What the runtime did so far, readable at any time.

#include <atomic>
#include <cstdint>

namespace tessera::runtime {

struct CounterValues {
  int64_t memory_hits = 0;       // images found in this process
  int64_t disk_hits = 0;         // images read from a cache folder
  int64_t misses = 0;            // images found in neither
  int64_t compiles = 0;          // calls of NVRTC
  int64_t compile_ms = 0;        // their wall time
  int64_t waits = 0;             // calls that waited for another thread's compile
  int64_t corrupt_entries = 0;   // cache files that were not what they should be
  int64_t failed_publishes = 0;  // images that could not be written to disk
  int64_t loads = 0;             // images given to the driver
};

/// The same numbers, counted from any thread.
struct Counters {
  std::atomic<int64_t> memory_hits = 0, disk_hits = 0, misses = 0, compiles = 0, compile_us = 0,
                       waits = 0, corrupt_entries = 0, failed_publishes = 0, loads = 0;

  CounterValues values() const {
    return {memory_hits, disk_hits,       misses,           compiles, compile_us / 1000,
            waits,       corrupt_entries, failed_publishes, loads};
  }
};

}  // namespace tessera::runtime
