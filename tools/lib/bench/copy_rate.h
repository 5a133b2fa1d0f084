#pragma once
// The rate of this GPU's memory: the copy that every op is compared with.

#include <cstdint>
#include <map>

#include "runtime/driver/device_timer.h"

namespace tessera::tools {

/// Copy rates of one device, measured by the protocol of the ops and remembered by size.
class CopyRate {
 public:
  explicit CopyRate(runtime::DeviceTimer& timer) : timer_(timer) {}

  /// GB/s, read plus write, of copying `one_side` bytes (rounded up to 16): the better of the
  /// driver's copy and a kernel with 16-byte accesses.
  double gbs(int64_t one_side);

 private:
  runtime::DeviceTimer& timer_;
  std::map<int64_t, double> known_;
};

}  // namespace tessera::tools
