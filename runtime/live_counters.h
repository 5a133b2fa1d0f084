#pragma once
// The counters of a running process.

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/counters.h"

namespace tessera::runtime {

/// The same counters as atomics, incremented by any thread.
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
