#pragma once
// Counters in device memory for the grid barriers of cooperative kernels.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "dsl/base/api.h"
#include "runtime/driver/driver.h"
#include "runtime/driver/memory.h"

namespace tessera::runtime {

/// Launches in one stream run one after the other and share a counter. A launch captured in a graph
/// gets its own. So launches that may overlap have different counters, except for graphs
/// instantiated from the same capture. Thread-safe. The memory is never freed: graphs may hold it.
class TESSERA_API GridBarriers {
 public:
  /// Allocates counters for many streams in the current context. Throws driver errors.
  GridBarriers(const Driver& driver, std::string op);

  /// Returns the two words of the next launch into `stream`. Throws a capture error if none is left
  /// during capture, where memory cannot be allocated.
  cu::DevicePtr of(StreamHandle stream);

 private:
  cu::DevicePtr fresh(bool is_captured);

  const Driver& driver_;
  const std::string op_;
  std::mutex mutex_;
  // Keyed by the driver's stream id, which is never reused.
  std::map<uint64_t, cu::DevicePtr> by_stream_;
  cu::DevicePtr next_ = 0, end_ = 0;
};

}  // namespace tessera::runtime
