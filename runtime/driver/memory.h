#pragma once
// Device memory, streams and events for tools and tests. Ops never allocate; their callers do.

#include <cstdint>

#include "dsl/base/api.h"
#include "runtime/driver/driver_api.h"

namespace tessera::runtime {

/// A stream as callers pass it: CUstream, null for the legacy default stream.
using StreamHandle = void*;

/// Memory on one device. Throws a driver error if the device has not enough.
///
/// Example: DeviceBuffer x(0, bytes); x.upload(host.data(), bytes); ... x.download(host.data(),
/// bytes);
class TESSERA_API DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(int device, int64_t bytes);  // contents undefined
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int device() const { return device_; }

  /// Copies between this buffer, from byte `offset` on, and host memory. Returns when the copy is
  /// done. A download waits for work in other streams.
  void upload(const void* from, int64_t bytes, int64_t offset = 0);
  void download(void* to, int64_t bytes, int64_t offset = 0) const;
  /// Sets every byte.
  void fill(uint8_t value);

 private:
  void check_range(int64_t bytes, int64_t offset) const;

  int device_ = 0;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

/// Copies or fills asynchronously in the order of `stream`; any mix of host and device pointers.
TESSERA_API void copy_async(int device, void* to, const void* from, int64_t bytes,
                            StreamHandle stream);
TESSERA_API void fill_async(int device, void* to, uint8_t value, int64_t bytes,
                            StreamHandle stream);

/// Waits for all work on the device.
TESSERA_API void synchronize(int device);
/// Waits for one stream.
TESSERA_API void synchronize(int device, StreamHandle stream);

/// An own stream, not ordered with the default stream.
class TESSERA_API OwnedStream {
 public:
  explicit OwnedStream(int device);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  StreamHandle handle() const { return stream_; }

 private:
  int device_;
  cu::Stream stream_ = nullptr;
};

/// A timed point in a stream.
class TESSERA_API Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(StreamHandle stream);
  void wait() const;
  /// Milliseconds from `start` to this event; both must have completed.
  double ms_since(const Event& start) const;

 private:
  int device_;
  cu::Event event_ = nullptr;
};

}  // namespace tessera::runtime
