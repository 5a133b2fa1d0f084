#include "runtime/driver/grid_barriers.h"

#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

// One 32-byte sector per counter: counters of different streams share no sector.
constexpr cu::DevicePtr kCounterBytes = 32;
constexpr cu::DevicePtr kChunkBytes = 512 * kCounterBytes;

}  // namespace

GridBarriers::GridBarriers(const Driver& driver, std::string op)
    : driver_(driver), op_(std::move(op)) {
  next_ = fresh(false);
}

cu::DevicePtr GridBarriers::of(StreamHandle stream) {
  auto* const handle = static_cast<cu::Stream>(stream);
  cu::StreamCaptureStatus status = cu::kCaptureNone;
  driver_.check(driver_.call.stream_is_capturing(handle, &status), "cuStreamIsCapturing", op_);
  const std::lock_guard lock(mutex_);
  if (status != cu::kCaptureNone) return fresh(true);
  unsigned long long id = 0;
  driver_.check(driver_.call.stream_get_id(handle, &id), "cuStreamGetId", op_);
  cu::DevicePtr& counter = by_stream_[id];
  if (counter == 0) counter = fresh(false);
  return counter;
}

cu::DevicePtr GridBarriers::fresh(bool is_captured) {
  if (next_ == end_) {
    if (is_captured) {
      raise(ErrorKind::capture, op_, "no counter is left for the barrier of the grid",
            {.hint = "launch the kernel once outside of the capture"});
    }
    driver_.check(driver_.call.mem_alloc(&next_, kChunkBytes), "cuMemAlloc", op_);
    driver_.check(driver_.call.memset_async(next_, 0, kChunkBytes, nullptr), "cuMemsetD8Async",
                  op_);
    driver_.check(driver_.call.stream_synchronize(nullptr), "cuStreamSynchronize", op_);
    end_ = next_ + kChunkBytes;
  }
  const cu::DevicePtr counter = next_;
  next_ += kCounterBytes;
  return counter;
}

}  // namespace tessera::runtime
