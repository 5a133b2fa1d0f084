#pragma once
// Counts what a stretch of code asks for: memory and locks. The program that uses this gets its own
// operator new and lock functions, which count and pass on.

#include <cstdint>

namespace tessera::test {

struct CallCounts {
  int64_t allocations = 0;  // operator new
  int64_t locks = 0;        // mutexes and reader-writer locks taken
};

/// Calls of this thread since it began.
CallCounts counted_calls();

}  // namespace tessera::test
