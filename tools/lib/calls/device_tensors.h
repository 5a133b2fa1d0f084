#pragma once
// Tensors that own their memory, on the CPU or on a GPU: the one place of the tools that tells the
// two apart.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dsl/base/tensor_view.h"

namespace tessera::tools {

/// Zero-filled memory on a device.
class DeviceMemory {
 public:
  /// Throws std::bad_alloc (CPU) or a driver error (GPU) when there is not enough.
  DeviceMemory(Device device, int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;

  Device device() const;
  int64_t bytes() const;
  void* data() const;
  /// The whole content, from and to host memory of exactly bytes() bytes. Done when the call
  /// returns.
  void upload(std::span<const std::byte> from);
  void download(std::span<std::byte> to) const;
  /// The same content at another address; the old one is free when the call returns.
  void move_elsewhere();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Waits for all work of the device; nothing on the CPU.
void wait_for(Device device);

/// "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:N". Throws Error (argument) for other
/// words, and Error (unsupported) saying why there is no such GPU.
Device parse_device(const std::string& word);

/// "cpu" or "cuda:0 (NVIDIA H200)".
std::string describe(Device device);

}  // namespace tessera::tools
