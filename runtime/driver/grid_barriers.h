#pragma once
// The counters at which the blocks of one cooperative kernel meet, in device memory.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "dsl/base/api.h"
#include "runtime/driver/driver.h"
#include "runtime/driver/memory.h"

namespace tessera::runtime {

/// Launches in one stream run one after the other and share a counter; a launch that a graph holds
/// has its own. So launches that may run side by side have different ones, but for graphs that were
/// instantiated from one capture. Thread-safe. The memory is never given back: graphs may hold it.
class TESSERA_API GridBarriers {
 public:
  /// Makes counters for many streams in the current context. Throws driver errors.
  GridBarriers(const Driver& driver, std::string op);

  /// The two words of a launch into `stream` now. Throws a capture error if none is left for a
  /// launch that is being captured, since memory cannot be had then.
  cu::DevicePtr of(StreamHandle stream);

 private:
  cu::DevicePtr fresh(bool is_captured);

  const Driver& driver_;
  const std::string op_;
  std::mutex mutex_;
  // By the driver's id, which no other stream ever has.
  std::map<uint64_t, cu::DevicePtr> by_stream_;
  cu::DevicePtr next_ = 0, end_ = 0;
};

}  // namespace tessera::runtime
