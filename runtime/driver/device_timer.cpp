#include "runtime/driver/device_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "dsl/base/error.h"
#include "runtime/runtime.h"

namespace tessera::runtime {
namespace {

// Odd size, so that no op's own fill is taken for the flush.
constexpr int64_t kFlushBytes = (int64_t{256} << 20) + 4096;
constexpr double kSampleUs = 30'000;  // of calls and flushes, per run
constexpr int kRuns = 3;
constexpr int kMinSamples = 10, kMaxSamples = 1000;

}  // namespace

std::vector<double> activity_per_call(std::span<const Activity> activities, uint64_t flush_bytes) {
  std::vector<double> calls;
  uint64_t counted_until = 0;  // kernels that begin early overlap
  for (const Activity& activity : activities) {
    if (activity.kind == Activity::Kind::fill && activity.bytes == flush_bytes) {
      calls.push_back(0);
      counted_until = activity.end_ns;
    } else if (!calls.empty() && activity.end_ns > counted_until) {
      const uint64_t begin = std::max(activity.start_ns, counted_until);
      calls.back() += static_cast<double>(activity.end_ns - begin) / 1e3;
      counted_until = activity.end_ns;
    }
  }
  return calls;
}

DeviceTimer::DeviceTimer(int device) : device_(device) {
  std::string why_not;
  trace_ = ActivityTrace::open(Runtime::instance().options(), why_not);
  method_ = trace_ ? "CUPTI" : fmt::format("CUDA events ({})", why_not);
  flush_buffer_ = DeviceBuffer(device, kFlushBytes);
  if (!trace_) return;
  // In a context that is older than CUPTI's place in this process it may see nothing.
  trace_->start();
  flush(nullptr);
  synchronize(device_);
  if (activity_per_call(trace_->stop(), kFlushBytes).size() == 1) return;
  method_ = fmt::format("CUDA events ({} records nothing here)", trace_->path());
  trace_.reset();
}

void DeviceTimer::flush(StreamHandle stream) {
  fill_async(device_, flush_buffer_.data(), 0, kFlushBytes, stream);
}

double DeviceTimer::mean_us_by_events(const std::function<void()>& call, int samples,
                                      StreamHandle stream) {
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < samples; ++i) {
    flush(stream);
    events.push_back(std::make_unique<Event>(device_));
    events.back()->record(stream);
    call();
    events.push_back(std::make_unique<Event>(device_));
    events.back()->record(stream);
  }
  synchronize(device_);
  double total_ms = 0;
  for (size_t i = 0; i < events.size(); i += 2) total_ms += events[i + 1]->ms_since(*events[i]);
  return total_ms * 1e3 / samples;
}

double DeviceTimer::mean_us(const std::function<void()>& call, int samples, StreamHandle stream) {
  synchronize(device_);
  if (!trace_) return mean_us_by_events(call, samples, stream);
  trace_->start();
  for (int i = 0; i < samples; ++i) {
    flush(stream);
    call();
  }
  synchronize(device_);
  const std::vector<double> calls = activity_per_call(trace_->stop(), kFlushBytes);
  if (calls.size() != static_cast<size_t>(samples)) {
    throw Error({.kind = ErrorKind::driver,
                 .what = "CUPTI lost activity records",
                 .expected = fmt::format("{} flushes", samples),
                 .got = fmt::format("{}", calls.size())});
  }
  return std::accumulate(calls.begin(), calls.end(), 0.0) / samples;
}

Timing DeviceTimer::measure(const std::function<void()>& call,
                            const std::function<void()>& before_next_run) {
  call();  // compiles and loads
  synchronize(device_);
  // Warm up and learn how long a call with its flush takes.
  Event begin(device_), end(device_);
  begin.record(nullptr);
  for (int i = 0; i < kMinSamples; ++i) {
    flush(nullptr);
    call();
  }
  end.record(nullptr);
  end.wait();
  const double each_us = end.ms_since(begin) * 1e3 / kMinSamples;

  Timing timing;
  timing.samples =
      std::clamp(static_cast<int>(kSampleUs / std::max(each_us, 1.0)), kMinSamples, kMaxSamples);
  std::array<double, kRuns> runs;
  for (double& us : runs) {
    if (&us != runs.data() && before_next_run) {
      before_next_run();
      call();
    }
    us = mean_us(call, timing.samples);
  }
  std::sort(runs.begin(), runs.end());
  timing.us = runs[kRuns / 2];
  timing.spread = timing.us > 0 ? (runs.back() - runs.front()) / timing.us : 0;
  return timing;
}

}  // namespace tessera::runtime
