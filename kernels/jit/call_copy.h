#pragma once
// A call on copies of its memory, to be made any number of times: the tensors of the caller are read while the
// copies are made, and never written.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "kernels/jit/ready_kernel.h"
#include "kernels/op_arguments.h"
#include "runtime/driver/driver.h"

namespace tessera::kernels::jit {

/// Memory on the device of a call, through the driver that the call uses (null on the CPU).
class CopyMemory {
 public:
  CopyMemory() = default;
  /// Contents undefined. Its address has the lower eight bits of `like`.
  CopyMemory(Device device, const runtime::Driver* driver, int64_t bytes, uintptr_t like);
  ~CopyMemory();
  CopyMemory(CopyMemory&& other) noexcept;
  CopyMemory& operator=(CopyMemory&& other) noexcept;

  std::byte* data() const { return data_; }

 private:
  Device device_ = Device::cpu();
  const runtime::Driver* driver_ = nullptr;
  std::byte* allocated_ = nullptr;
  std::byte* data_ = nullptr;
};

/// The launches of a call, on copies of all memory that they use.
class CallCopy {
 public:
  using Launches = std::vector<NotedLaunch>;
  using Results = std::vector<std::vector<std::byte>>;

  /// Makes `call`, of which nothing is launched. What lies in `workspaces` is no result.
  ///
  /// Errors: those of the call; driver, if the device has too little memory for the copies; argument, if
  ///         kernels run on several devices.
  explicit CallCopy(const std::function<void()>& call, std::span<const TensorView> workspaces = {});
  ~CallCopy();
  CallCopy(const CallCopy&) = delete;
  CallCopy& operator=(const CallCopy&) = delete;

  /// Null for a call that launches nothing, or on the CPU.
  const runtime::Driver* driver() const { return driver_; }
  Device device() const { return device_; }
  Stream stream() const { return stream_; }
  bool is_empty() const { return is_empty_; }

  /// The launches of a call that differs in its tile sizes, on the same copies.
  ///
  /// Errors: those of the call; unsupported, if it uses other memory.
  Launches launches_of(const std::function<void()>& call);

  /// Puts the launches into stream(); on the CPU they are done when this returns.
  void start(const Launches& launches) const;
  /// Makes the launches on the contents that the memory had, and returns what they have written.
  Results results_of(const Launches& launches) const;

 private:
  /// Memory that launches use: overlapping tensors share a range.
  struct Range {
    uintptr_t begin = 0;
    int64_t bytes = 0;
    bool is_written = false;
    CopyMemory copy = {}, before = {};
    bool is_result = false;
  };

  /// The ranges of the noted launches, in the order of their first use.
  std::vector<Range> ranges_of(const std::function<void()>& call, bool copies, Launches& noted);
  void add(std::vector<Range>& ranges, const TensorView& view, bool is_written, bool copies) const;
  Launches on_copies(Launches noted, const std::vector<Range>& ranges) const;
  void copy(void* to, const void* from, int64_t bytes) const;
  void wait() const;

  Device device_ = Device::cpu();
  const runtime::Driver* driver_ = nullptr;
  Stream stream_ = nullptr;
  std::vector<Range> ranges_;
  bool is_empty_ = true;
};

}  // namespace tessera::kernels::jit
