#pragma once
// The rate of this GPU's memory for an op that reads more than it writes, or less. A copy of as
// many bytes says it only roughly: on an H200 it takes up to 4 % more or less, and with less than
// 40 MB, of which the copy's writes need not leave L2, a kernel that only reads takes up to 20 % more.

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/driver/device_timer.h"

namespace tessera::tools {

/// Times of plain kernels that read and write, on one device, measured by the protocol of the ops and
/// remembered by size.
///
/// Example: StreamTime stream(timer); double us = stream.us(x.span_bytes(), y.span_bytes());
class StreamTime {
 public:
  explicit StreamTime(runtime::DeviceTimer& timer) : timer_(timer) {}

  /// Microseconds of reading `read` bytes while writing `written` (each rounded up to 16): the better
  /// of two kernels with 16-byte accesses.
  double us(int64_t read, int64_t written);

 private:
  runtime::DeviceTimer& timer_;
  std::map<std::pair<int64_t, int64_t>, double> known_;
};

}  // namespace tessera::tools
