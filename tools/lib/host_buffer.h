#pragma once
// Zero-filled host memory for tensor data. Pages that nobody touches cost nothing, so a sparse
// strided tensor is cheap.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace tessera::tools {

/// At least 64-byte aligned (vector accesses need 16). Throws std::bad_alloc, at once beyond the
/// memory of the machine: the system would grant it and end the process when it is filled.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(int64_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, static_cast<size_t>(size_)}; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> storage_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tessera::tools
