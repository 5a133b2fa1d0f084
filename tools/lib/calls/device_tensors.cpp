#include "tools/lib/calls/device_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <variant>

#include "dsl/base/error.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "tools/lib/host_buffer.h"

namespace tessera::tools {

struct DeviceMemory::Impl {
  Device device;
  std::variant<HostBuffer, runtime::DeviceBuffer> storage;
};

DeviceMemory::DeviceMemory(Device device, int64_t bytes) : impl_(std::make_unique<Impl>()) {
  impl_->device = device;
  if (!device.is_cuda()) {
    impl_->storage = HostBuffer(bytes);
    return;
  }
  runtime::DeviceBuffer buffer(device.ordinal, bytes);
  buffer.fill(0);
  impl_->storage = std::move(buffer);
}
DeviceMemory::~DeviceMemory() = default;
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;

Device DeviceMemory::device() const {
  return impl_->device;
}

int64_t DeviceMemory::bytes() const {
  if (const auto* host = std::get_if<HostBuffer>(&impl_->storage)) return host->size();
  return std::get<runtime::DeviceBuffer>(impl_->storage).bytes();
}

void* DeviceMemory::data() const {
  if (auto* host = std::get_if<HostBuffer>(&impl_->storage)) return host->data();
  return std::get<runtime::DeviceBuffer>(impl_->storage).data();
}

void DeviceMemory::upload(std::span<const std::byte> from) {
  const auto size = static_cast<int64_t>(from.size());
  TESSERA_CHECK(size == bytes(), "upload of another size than the memory");
  if (size == 0) return;
  if (auto* host = std::get_if<HostBuffer>(&impl_->storage)) {
    std::memcpy(host->data(), from.data(), from.size());
  } else {
    std::get<runtime::DeviceBuffer>(impl_->storage).upload(from.data(), size);
  }
}

void DeviceMemory::download(std::span<std::byte> to) const {
  const auto size = static_cast<int64_t>(to.size());
  TESSERA_CHECK(size == bytes(), "download of another size than the memory");
  if (size == 0) return;
  if (const auto* host = std::get_if<HostBuffer>(&impl_->storage)) {
    std::memcpy(to.data(), host->data(), to.size());
  } else {
    std::get<runtime::DeviceBuffer>(impl_->storage).download(to.data(), size);
  }
}

void DeviceMemory::move_elsewhere() {
  DeviceMemory other(device(), bytes());
  if (const auto* host = std::get_if<HostBuffer>(&impl_->storage)) {
    std::copy_n(host->data(), host->size(), static_cast<std::byte*>(other.data()));
  } else if (bytes() > 0) {
    runtime::copy_async(device().ordinal, other.data(), data(), bytes(), nullptr);
    runtime::synchronize(device().ordinal);
  }
  *this = std::move(other);
}

void wait_for(Device device) {
  if (device.is_cuda()) runtime::synchronize(device.ordinal);
}

Device parse_device(const std::string& word) {
  if (word == "cpu") return Device::cpu();
  if (word == "auto") return runtime::num_devices() > 0 ? Device::cuda(0) : Device::cpu();
  const std::string_view prefix = "cuda:";
  int ordinal = word == "cuda" ? 0 : -1;
  if (word.starts_with(prefix)) {
    const char* const end = word.data() + word.size();
    const auto [next, error] = std::from_chars(word.data() + prefix.size(), end, ordinal);
    if (error != std::errc() || next != end) ordinal = -1;
  }
  ErrorFields fields;
  fields.argument = "device";
  fields.got = word;
  if (ordinal < 0) {
    fields.kind = ErrorKind::argument;
    fields.what = fmt::format("unknown device '{}'", word);
    fields.expected = "auto, cpu or cuda:N";
    throw Error(std::move(fields));
  }
  const int available = runtime::num_devices();
  if (ordinal >= available) {
    fields.kind = ErrorKind::unsupported;
    fields.what = fmt::format("there is no device cuda:{}", ordinal);
    fields.expected =
        available == 0 ? "a CUDA device" : fmt::format("cuda:0 to cuda:{}", available - 1);
    if (available == 0) fields.got = runtime::why_no_device();
    throw Error(std::move(fields));
  }
  return Device::cuda(ordinal);
}

std::string describe(Device device) {
  if (!device.is_cuda()) return "cpu";
  return fmt::format("{} ({})", to_string(device), runtime::device_info(device.ordinal).name);
}

}  // namespace tessera::tools
