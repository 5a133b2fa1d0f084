#include "runtime/driver/memory.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/driver/device.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

cu::DevicePtr as_device_ptr(const void* pointer) {
  return static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(pointer));
}
cu::Stream as_stream(StreamHandle handle) {
  return static_cast<cu::Stream>(handle);
}

}  // namespace

DeviceBuffer::DeviceBuffer(int device, int64_t bytes) : device_(device), bytes_(bytes) {
  if (bytes < 0) {
    raise(ErrorKind::argument, "", "a device buffer cannot have this size",
          {.expected = "0 or more bytes", .got = fmt::format("{}", bytes)});
  }
  if (bytes == 0) return;
  const ContextScope context(device);
  cu::DevicePtr pointer = 0;
  const cu::Result result = driver().call.mem_alloc(&pointer, static_cast<size_t>(bytes));
  driver().check(result, fmt::format("allocating {} bytes on cuda:{}", bytes, device));
  data_ = reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  try {
    const ContextScope context(device_);
    static_cast<void>(driver().call.mem_free(as_device_ptr(data_)));
  } catch (const Error&) {
    // The driver is gone or the context is dead: there is nothing left to free.
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

void DeviceBuffer::check_range(int64_t bytes, int64_t offset) const {
  if (bytes >= 0 && offset >= 0 && bytes <= bytes_ && offset <= bytes_ - bytes) return;
  raise(ErrorKind::argument, "", "a copy outside its device buffer",
        {.expected = fmt::format("bytes within [0, {})", bytes_),
         .got = fmt::format("{} bytes from byte {} on", bytes, offset)});
}

void DeviceBuffer::upload(const void* from, int64_t bytes, int64_t offset) {
  check_range(bytes, offset);
  if (bytes == 0) return;
  copy_async(device_, static_cast<char*>(data_) + offset, from, bytes, nullptr);
  synchronize(device_, nullptr);
}

void DeviceBuffer::download(void* to, int64_t bytes, int64_t offset) const {
  check_range(bytes, offset);
  if (bytes == 0) return;
  synchronize(device_);
  copy_async(device_, to, static_cast<const char*>(data_) + offset, bytes, nullptr);
  synchronize(device_, nullptr);
}

void DeviceBuffer::fill(uint8_t value) {
  if (bytes_ == 0) return;
  fill_async(device_, data_, value, bytes_, nullptr);
  synchronize(device_, nullptr);
}

void copy_async(int device, void* to, const void* from, int64_t bytes, StreamHandle stream) {
  const ContextScope context(device);
  const cu::Result result = driver().call.memcpy_async(
      as_device_ptr(to), as_device_ptr(from), static_cast<size_t>(bytes), as_stream(stream));
  driver().check(result, fmt::format("copying {} bytes on cuda:{}", bytes, device));
}

void fill_async(int device, void* to, uint8_t value, int64_t bytes, StreamHandle stream) {
  const ContextScope context(device);
  const cu::Result result = driver().call.memset_async(
      as_device_ptr(to), value, static_cast<size_t>(bytes), as_stream(stream));
  driver().check(result, fmt::format("filling {} bytes on cuda:{}", bytes, device));
}

void synchronize(int device) {
  const ContextScope context(device);
  driver().check(driver().call.ctx_synchronize(), fmt::format("waiting for cuda:{}", device));
}

void synchronize(int device, StreamHandle stream) {
  const ContextScope context(device);
  driver().check(driver().call.stream_synchronize(as_stream(stream)),
                 fmt::format("waiting for a stream of cuda:{}", device));
}

OwnedStream::OwnedStream(int device) : device_(device) {
  const ContextScope context(device);
  driver().check(driver().call.stream_create(&stream_, cu::kStreamNonBlocking), "cuStreamCreate");
}

OwnedStream::~OwnedStream() {
  try {
    const ContextScope context(device_);
    static_cast<void>(driver().call.stream_destroy(stream_));
  } catch (const Error&) {
    // As for buffers.
  }
}

Event::Event(int device) : device_(device) {
  const ContextScope context(device);
  driver().check(driver().call.event_create(&event_, 0), "cuEventCreate");
}

Event::~Event() {
  try {
    const ContextScope context(device_);
    static_cast<void>(driver().call.event_destroy(event_));
  } catch (const Error&) {
    // As for buffers.
  }
}

void Event::record(StreamHandle stream) {
  const ContextScope context(device_);
  driver().check(driver().call.event_record(event_, as_stream(stream)), "cuEventRecord");
}

void Event::wait() const {
  const ContextScope context(device_);
  driver().check(driver().call.event_synchronize(event_), "cuEventSynchronize");
}

double Event::ms_since(const Event& start) const {
  const ContextScope context(device_);
  float ms = 0;
  driver().check(driver().call.event_elapsed_time(&ms, start.event_, event_), "cuEventElapsedTime");
  return ms;
}

}  // namespace tessera::runtime
