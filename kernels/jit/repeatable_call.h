#pragma once
// A checked call, made in full once and then launched again on other addresses.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/jit/launch_plan.h"

namespace tessera::kernels::jit {

/// The launches of one call of an op. A later call with the same op, options, dtypes, shapes,
/// strides, devices and alignments passes the same checks and launches the same kernels; use these
/// as the key of stored calls. Every launch checks for overlapping memory.
class TESSERA_API RepeatableCall {
 public:
  /// Makes `call`, a whole call on `tensors` (absent ones included), and keeps its launches. Returns
  /// nothing if they cannot be repeated: on the CPU, while a plan is recorded or nothing is
  /// launched, or if a kernel gets memory of none or of several of the tensors.
  ///
  /// Errors: those of `call`.
  static std::optional<RepeatableCall> learn(std::span<const TensorView* const> tensors,
                                             const std::function<void()>& call);

  /// Launches on `data`, one address per tensor in the order of learn(). Returns false and launches
  /// nothing if memory overlaps or this thread is in another call mode: then make the call in full.
  /// No allocation, no lock.
  ///
  /// Errors: driver, as runtime::launch.
  bool launch_again(std::span<void* const> data, Stream stream) const;

 private:
  struct Memory {
    size_t tensor = 0;
    int64_t bytes = 0;
  };

  RepeatableCall(LaunchPlan plan, std::vector<Memory> memories)
      : plan_(std::move(plan)), memories_(std::move(memories)) {}
  bool any_overlap(std::span<void* const> data) const;

  LaunchPlan plan_;
  std::vector<Memory> memories_;  // in address order of the recorded call
};

/// The largest power of two, at most 256, that divides an address; 0 for null. No kernel needs
/// more.
uint64_t alignment_of(const void* address);

}  // namespace tessera::kernels::jit
