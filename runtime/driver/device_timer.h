#pragma once
// GPU time of one call, measured so that nobody can fool himself: a 256 MiB write flushes the L2
// before each call, the time is the sum of the device activity of the call alone, about 30 ms of
// samples, the median of three runs.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/driver/device_activity.h"
#include "runtime/driver/memory.h"

namespace tessera::runtime {

struct Timing {
  double us = 0;      // median of the runs' means
  double spread = 0;  // (largest - smallest run) / median
  int samples = 0;    // calls per run
};

/// How long something ran between flushes: one entry per flush, in us. Kernels that overlap count once,
/// gaps between kernels do not. A flush is a fill of exactly `flush_bytes`; what comes before the
/// first is dropped. `activities` by start time.
std::vector<double> activity_per_call(std::span<const Activity> activities, uint64_t flush_bytes);

class DeviceTimer {
 public:
  /// Opens CUPTI; without it CUDA events are used, which also time the gaps between kernels, and
  /// method() says so.
  explicit DeviceTimer(int device);

  /// `call` puts its work into the legacy default stream. It has been called once before it is
  /// measured. `before_next_run` runs between two runs, say to move what `call` works on.
  Timing measure(const std::function<void()>& call,
                 const std::function<void()>& before_next_run = {});

  /// The mean of `samples` calls, each after a flush; nothing warms up. `call` puts its work into
  /// `stream`.
  double mean_us(const std::function<void()>& call, int samples, StreamHandle stream = nullptr);

  /// "CUPTI" or "CUDA events (no libcupti; ...)".
  const std::string& method() const { return method_; }
  int device() const { return device_; }

 private:
  void flush(StreamHandle stream);
  double mean_us_by_events(const std::function<void()>& call, int samples, StreamHandle stream);

  int device_;
  std::unique_ptr<ActivityTrace> trace_;
  std::string method_;
  DeviceBuffer flush_buffer_;
};

}  // namespace tessera::runtime
